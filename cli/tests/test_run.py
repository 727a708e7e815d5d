"""hakmem run: the program is what the user would have got, with the library in front."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HAKMEM

from hakmem import signals


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_code_is_the_commands(hakmem, code):
    assert hakmem("run", "--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGABRT"])
def test_death_by_signal_is_the_commands(hakmem, name):
    result = hakmem("run", "--", "sh", "-c", f"kill -{name[3:]} $$")
    assert result.returncode == -getattr(signal, name)


@pytest.mark.parametrize("mode", ["--leaks", "--stats", "--compare"])
@pytest.mark.parametrize(
    ("number", "name"),
    [
        (signal.SIGRTMIN, "SIGRTMIN"),
        (signal.SIGRTMIN + 6, r"SIGRTMIN\+6"),
        (signal.SIGRTMAX - 1, "SIGRTMAX-1"),
        (signal.SIGRTMAX, "SIGRTMAX"),
    ],
)
def test_death_by_a_signal_that_has_no_name_is_told_too(hakmem, mode, number, name):
    die = f"import os; os.kill(os.getpid(), {int(number)})"
    result = hakmem("run", mode, "--", sys.executable, "-c", die)
    assert result.returncode == -number
    assert re.search(rf"^hakmem: .* died of {name}( |$)", result.stderr, re.M), result.stderr


def test_real_time_signals_are_called_as_by_a_shell():
    shell = subprocess.run(["bash", "-c", "for n in {34..64}; do kill -l $n; done"], capture_output=True, text=True, check=True)
    assert [signals.name_of(number) for number in range(34, 65)] == [f"SIG{name}" for name in shell.stdout.split()]
    assert signals.name_of(32) == "signal 32"  # glibc's own


def test_command_takes_the_place_of_the_process(start):
    process = start("run", "--", "sh", "-c", "echo $$; exec sleep 60")
    assert int(process.stdout.readline()) == process.pid
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM


def test_sigpipe_kills_as_usual(hakmem):
    result = hakmem("run", "--", "sh", "-c", "grep SigIgn /proc/self/status")
    ignored = int(result.stdout.split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


def test_streams_are_the_commands(hakmem):
    result = hakmem("run", "--", "sh", "-c", "cat; echo err >&2", input="text")
    assert (result.stdout, result.stderr) == ("text", "err\n")


def test_arguments_of_the_command_are_left_alone(hakmem):
    assert hakmem("run", "echo", "--stats", "--help", "-x").stdout == "--stats --help -x\n"


def test_library_is_loaded(hakmem):
    assert "libhakmem.so" in hakmem("run", "--", "cat", "/proc/self/maps").stdout


def test_library_comes_after_what_is_preloaded_already(hakmem):
    result = hakmem("run", "--", "sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD="libm.so.6")
    first, second = result.stdout.strip().split(":")
    assert first == "libm.so.6"
    assert second.endswith("/libhakmem.so")


def test_secure_library_is_loaded_when_asked_for(hakmem):
    maps = hakmem("run", "--secure", "--", "cat", "/proc/self/maps").stdout
    assert "libhakmem-secure.so" in maps and "libhakmem.so" not in maps


@pytest.mark.parametrize("secure", [(), ("--secure",)])
def test_hakmem_that_is_preloaded_already_makes_way(hakmem, secure):
    there = "/x/libhakmem.so:libm.so.6:/x/libhakmem-secure.so.0"
    result = hakmem("run", *secure, "--", "sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD=there)
    first, second = result.stdout.strip().split(":")
    assert first == "libm.so.6"
    assert second.endswith("/libhakmem-secure.so" if secure else "/libhakmem.so") and not second.startswith("/x")


def test_environment_is_not_changed_otherwise(hakmem, monkeypatch):
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    seen = dict(line.split("=", 1) for line in hakmem("run", "--", "env", "-0").stdout.split("\0") if line)
    assert "LC_CTYPE" not in seen
    assert set(seen) - set(os.environ) == {"LD_PRELOAD"}


def test_stats_are_asked_for(hakmem):
    result = hakmem("run", "--stats", "--", "sh", "-c", "echo $HAKMEM_STATS")
    assert result.stdout == "1\n"


@pytest.mark.parametrize("mode", [["--stats"], ["--leaks"], ["--compare", "--repetitions", "1"]], ids=lambda mode: mode[0])
def test_status_is_the_commands_where_the_caller_ignores_ends_of_children(environment, mode):
    command = [HAKMEM, "run", *mode, "--", "sh", "-c", "exit 3"]
    usual, ignored = (
        subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, how),
        )
        for how in (signal.SIG_DFL, signal.SIG_IGN)
    )
    assert usual.returncode != 0
    assert (ignored.returncode, ignored.stderr) == (usual.returncode, usual.stderr)


def test_the_callers_settings_are_the_programs_alone(hakmem, tmp_path):
    file = tmp_path / "heap"
    assert not hakmem("options", HAKMEM_STATS="1").stderr
    assert hakmem("options", HAKMEM_PROFILE=str(file)).returncode == 0 and not file.exists()


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("no-such-program", 127, "hakmem: no-such-program: command not found\n"),
        ("./no/such/program", 127, "hakmem: ./no/such/program: no such file\n"),
        ("/etc/passwd", 126, "hakmem: /etc/passwd: not executable\n"),
    ],
)
@pytest.mark.parametrize("mode", [(), ("--compare",)])
def test_missing_program_is_one_line(hakmem, mode, command, code, message):
    result = hakmem("run", *mode, "--", command)
    assert (result.returncode, result.stdout, result.stderr) == (code, "", message)


def test_file_that_is_no_program_is_one_line(hakmem, tmp_path):
    file = tmp_path / "text"
    file.write_text("no program\n")
    file.chmod(0o755)
    result = hakmem("run", "--", str(file))
    assert (result.returncode, result.stderr) == (126, f"hakmem: {file}: Exec format error\n")


def test_missing_library_is_one_line(hakmem, tmp_path):
    library = tmp_path / "libhakmem.so"
    for command in (["run", "--library", str(library), "true"], ["options", "--library", str(library)]):
        result = hakmem(*command)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr == f"hakmem: the library {library} does not exist\n"


def test_library_path_that_cannot_be_preloaded_is_one_line(hakmem, tmp_path):
    library = tmp_path / "a b.so"
    library.touch()
    result = hakmem("run", "--library", str(library), "true")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "LD_PRELOAD can't carry" in result.stderr


def test_static_program_runs_with_a_warning(hakmem, tmp_path):
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    source, program = tmp_path / "answer.c", tmp_path / "answer"
    source.write_text("int main(void) { return 42; }\n")
    subprocess.run([compiler, "-static", "-o", program, source], check=True)
    result = hakmem("run", "--", str(program))
    assert result.returncode == 42
    assert result.stderr == f"hakmem: warning: {program} runs without hakmem: it is statically linked\n"


_NOTE = """
#include <stdlib.h>
__attribute__((section(".note.hakmem"), used, aligned(4)))
static const struct { unsigned words[3]; char name[8]; long where; } note = {{7, 8, 0x68616b}, "hakmem", 0};
#if MALLOC
void *malloc(size_t size) { return size == 0 ? (void *)&note : NULL; }
#endif
int main(void) { return getenv("LD_PRELOAD") == NULL ? 42 : 43; }
"""


def _with_note(folder: Path, *options: str) -> str:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    source, program = folder / "answer.c", folder / "answer"
    source.write_text(_NOTE)
    subprocess.run([compiler, *options, "-o", program, source], check=True)
    return str(program)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("-DMALLOC=1",), 42),
        ((), 43),  # of an archive without libc's names, whose malloc is to be preloaded
        (("-static",), 43),  # for what it starts
        (("-static-pie",), 43),
        (("-static", "-Wl,-z,noseparate-code"), 43),
    ],
)
def test_program_with_hakmem_in_it_runs_with_that_alone(hakmem, tmp_path, options, code):
    """By hakmem's note, which says where its descriptor lies. A second one would write the last word on an empty heap."""
    result = hakmem("run", "--", _with_note(tmp_path, *options))
    assert (result.returncode, result.stderr) == (code, "")


_ASKED = [("--leaks",), ("--profile", "heap"), ("--stats",), ("--stats-file", "stats"), ("--blackbox", "box")]
_TOLD = "the report covers only that hakmem, and malloc is libc's"


@pytest.mark.parametrize("option", _ASKED)
def test_no_second_hakmem_writes_what_is_asked_of_the_programs_own(hakmem, tmp_path, monkeypatch, option):
    """Beside one that leaves malloc to libc."""
    monkeypatch.chdir(tmp_path)
    program = _with_note(tmp_path)
    result = hakmem("run", *option, "--", program, LD_PRELOAD="/x/libhakmem.so")
    assert result.returncode == 42
    assert result.stderr.count(f"hakmem: {program} has hakmem linked in, so none is preloaded: {_TOLD}\n") == 1
    assert hakmem("run", *option, "--", program, LD_PRELOAD="libm.so.6").returncode == 43


@pytest.mark.parametrize("variable", ["HAKMEM_PROFILE", "HAKMEM_STATS_FILE", "HAKMEM_BLACKBOX"])
def test_nor_what_the_environment_asks_for(hakmem, tmp_path, variable):
    program = _with_note(tmp_path)
    result = hakmem("run", "--", program, **{variable: str(tmp_path / "file")})
    assert (result.returncode, result.stderr.count("\n"), _TOLD in result.stderr) == (42, 1, True)


@pytest.mark.parametrize("options", [("-static",), ("-static-pie",)])
def test_what_a_static_program_starts_is_preloaded_all_the_same(hakmem, tmp_path, options):
    result = hakmem("run", "--stats", "--", _with_note(tmp_path, *options))
    assert result.returncode == 43 and _TOLD not in result.stderr


def test_a_program_that_the_loader_is_told_to_start_runs_without_a_warning(hakmem):
    with open("/proc/self/maps") as file:
        loader = next((line.split()[-1] for line in file if re.search(r"/ld-[^/]*$", line)), None)
    if not loader:
        pytest.skip("no loader of its own")
    result = hakmem("run", "--", loader, shutil.which("cat"), "/proc/self/maps")
    assert "libhakmem.so" in result.stdout
    assert (result.returncode, result.stderr) == (0, "")


def test_wrong_usage_is_refused(hakmem):
    for arguments in (
        [],
        ["--stats", "--compare", "true"],
        ["--stats-file", "x", "--compare", "true"],
        ["--json", os.devnull, "true"],
        ["--markdown", os.devnull, "true"],
        ["--with", "jemalloc", "true"],
        ["--secure", "--library", "x", "true"],
    ):
        result = hakmem("run", *arguments)
        assert result.returncode == 2
        assert "Usage:" in result.stderr


@pytest.mark.parametrize("option", [("--window",), ("--blackbox", "box")])
def test_what_hakmems_thread_writes_is_refused_where_there_is_none(hakmem, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    for secure, variables, why in (
        (("--secure",), {}, "--secure: the secure library keeps none"),
        ((), {"HAKMEM_KEEPER": "0"}, "HAKMEM_KEEPER=0: hakmem's thread, which writes it, is then not started"),
        ((), {"HAKMEM_KEEPER": "Off"}, "HAKMEM_KEEPER=0: "),
    ):
        result = hakmem("run", *secure, *option, "--", "touch", "ran", **variables)
        assert result.returncode == 2 and f"{option[0]} does not go with {why}" in " ".join(result.stderr.split())
    assert not (tmp_path / "ran").exists()
    assert hakmem("run", *option, "--", "touch", "ran", HAKMEM_KEEPER="2").returncode == 0


def test_command_needs_click_and_rich_alone():
    """As Debian's package has it; what a single command needs beyond is loaded by that command."""
    extras = ["numpy", "scipy", "jinja2", "elftools", "textual", "google", "opentelemetry", "vl_convert"]
    code = f"import sys; sys.modules.update(dict.fromkeys({extras})); from hakmem.app import main as commands\n"
    code += "for name in commands.list_commands(None): commands.get_command(None, name)"
    subprocess.run([sys.executable, "-c", code], check=True)

"""hakmem run --stats: the program itself, once, whatever it does with its streams and whoever it starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest
from conftest import HAKMEM as COMMAND

from hakmem.render import exact_byte_text


def processes(text: str) -> list[tuple[int, str]]:
    """Number and name of each report."""
    return [(int(number), name) for number, name in re.findall(r"^hakmem \S+, process (\d+)(?: \((.*)\))?$", text, re.M)]


def test_the_program_is_shown_once_and_its_children_are_not(hakmem):
    result = hakmem("run", "--stats", "--", "bash", "-c", "echo $$; ls / >/dev/null; (sort /dev/null; ls / >/dev/null); exit 3")
    assert result.returncode == 3
    assert processes(result.stderr) == [(int(result.stdout), "bash")]


def test_children_are_shown_when_asked_for(hakmem):
    program = "echo $$; ls / >/dev/null; sort /dev/null; true; exit 0"
    result = hakmem("run", "--stats", "--stats-children", "--", "bash", "-c", program)
    (first, name), *others = processes(result.stderr)
    assert (first, name) == (int(result.stdout), "bash")
    assert len(others) == 2 and len({first, *dict(others)}) == 3


def test_name_is_that_of_what_the_process_became(hakmem):
    result = hakmem("run", "--stats", "--", "bash", "-c", "exec sort /dev/null")
    assert [name for _, name in processes(result.stderr)] == ["sort"]


def test_long_name_is_whole(hakmem, tmp_path):
    (tmp_path / "a_name_of_many_letters").symlink_to("/bin/bash")
    result = hakmem("run", "--stats", "--", str(tmp_path / "a_name_of_many_letters"), "-c", ":")
    assert [name for _, name in processes(result.stderr)] == ["a_name_of_many_letters"]


@pytest.mark.parametrize("program", ["exec 2>&-; exec cat", "exec ls /", "exec sort /dev/null", "exec >&- 2>&-; exit 0"])
def test_closed_streams_lose_nothing(hakmem, program):
    result = hakmem("run", "--stats", "--", "bash", "-c", program)
    assert len(processes(result.stderr)) == 1
    assert "resident set of the process" in result.stderr


def test_sizes_have_units_and_zeros_are_left_out(hakmem):
    text = hakmem("run", "--stats", "--", "ls", "/").stderr
    assert re.search(r"committed for blocks +\d+\.\d [KM]iB", text)
    assert re.search(r"^ +16 B +64 KiB ", text, re.M)
    assert not re.search(r" 0( |$)", text, re.M)
    assert "orphan" not in text and "guards left out" not in text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (16, "16 B"), (1280, "1.25 KiB"), (65536, "64 KiB"), (1000, "1000 B"), (1025, "1025 B"), (2 << 20, "2 MiB")],
)
def test_exact_sizes(size, text):
    assert exact_byte_text(size) == text


def test_no_report_is_told(hakmem):
    # dash ends by _exit.
    result = hakmem("run", "--stats", "--", "sh", "-c", "sort /dev/null; exit 0")
    if not processes(result.stderr):
        assert "sh ended with code 0 and left no statistics" in result.stderr and "--stats-children" in result.stderr
    result = hakmem("run", "--stats", "--", "bash", "-c", "kill -TERM $$")
    assert result.returncode == -signal.SIGTERM
    assert "bash died of SIGTERM and left no statistics" in result.stderr
    assert not processes(result.stderr)


def test_file_is_json_where_it_is_called_so(hakmem, tmp_path):
    program = ("bash", "-c", "echo $$; ls / >/dev/null; exit 0")
    for name in ("stats.json", "stats.txt", "stats"):
        file = tmp_path / name
        result = hakmem("run", "--stats-file", str(file), "--", *program)
        assert (result.returncode, result.stderr) == (0, "")
        number = int(result.stdout)
        if name.endswith(".json"):
            report = json.loads(file.read_text())
            assert (report["pid"], report["name"]) == (number, "bash")
            assert f"process {number} (bash)" in hakmem("stats", str(file)).stdout
        else:
            assert processes(file.read_text()) == [(number, "bash")]


def test_a_report_as_text_is_told_as_such(hakmem, tmp_path):
    file = tmp_path / "stats.txt"
    hakmem("run", "--stats-file", str(file), "--", "true")
    result = hakmem("stats", str(file))
    assert (result.returncode, result.stdout) == (1, "")
    why = "a report as text, which can be read as it is; this command reads those that --stats-file writes to a file named *.json"
    assert result.stderr == f"hakmem: {file}: {why}\n"


def test_children_have_files_of_their_own(hakmem, tmp_path):
    program = ("bash", "-c", "echo $$; ls / >/dev/null; sort /dev/null; exit 0")
    for name in ("stats.json", "stats.%p.json"):
        folder = tmp_path / name.replace("%", "")
        folder.mkdir()
        result = hakmem("run", "--stats-children", "--stats-file", str(folder / name), "--", *program)
        number = int(result.stdout)
        own = folder / name.replace("%p", str(number))
        assert json.loads(own.read_text())["pid"] == number
        others = set(folder.iterdir()) - {own}
        assert len(others) == 2
        assert {f"stats.{json.loads(path.read_text())['pid']}.json" for path in others} == {path.name for path in others}


def test_file_of_the_environment_is_not_written_over_by_children(hakmem, tmp_path):
    file = tmp_path / "stats.json"
    program = "echo $$; (sleep 0.1; exec sort /dev/null) >/dev/null & exit 0"
    result = hakmem("run", "--stats", "--", "bash", "-c", program, HAKMEM_STATS_FILE=str(file))
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(file.read_text())["pid"] == int(result.stdout)


def test_no_place_for_the_file_is_told_before_the_program_runs(hakmem, tmp_path):
    result = hakmem("run", "--stats-file", str(tmp_path / "none" / "stats"), "--", "touch", str(tmp_path / "ran"))
    assert result.returncode == 1
    assert result.stderr == f"hakmem: {tmp_path / 'none' / 'stats'}: no such directory\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("word", "is_json"), [("1", True), ("on", True), ("True", True), ("yes", True), ("0", False), ("off", False)])
def test_json_on_standard_error_as_the_option_says(hakmem, word, is_json):
    result = hakmem("run", "--stats", "--", "sort", "/dev/null", HAKMEM_STATS_JSON=word)
    assert (json.loads(result.stderr)["name"] == "sort") if is_json else result.stderr.startswith("hakmem 0.")


def test_a_temporary_folder_with_a_place_for_numbers_in_its_name(hakmem, tmp_path):
    folder = tmp_path / "a%pb"
    folder.mkdir()
    result = hakmem("run", "--stats", "--leaks", "--", "sort", "/dev/null", TMPDIR=str(folder))
    assert result.returncode == 0
    assert len(processes(result.stderr)) == 1 and "hakmem: live at exit" in result.stderr
    assert "left no" not in result.stderr


def test_with_leaks_both_are_shown(hakmem, tmp_path):
    kept = tmp_path / "snapshot"
    result = hakmem("run", "--stats", "--leaks", "--profile", str(kept), "--", "sort", "/dev/null")
    assert len(processes(result.stderr)) == 1
    assert "hakmem: live at exit" in result.stderr and kept.exists()


def test_open_files_are_the_programs(environment, tmp_path):
    (tmp_path / "text").write_text("hello\n")
    with (tmp_path / "text").open() as file:
        number = file.fileno()
        result = subprocess.run(
            [COMMAND, "run", "--stats", "--", "bash", "-c", f"cat <&{number}"],
            env=environment,
            pass_fds=[number],
            capture_output=True,
            text=True,
        )
    assert result.stdout == "hello\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP"])
def test_signals_reach_the_program(start, name):
    number = getattr(signal, name)
    waits = f'trap "echo got; exit 5" {name[3:]}; echo up; while :; do sleep 0.05; done'
    before = signal.signal(number, signal.SIG_DFL)  # what is ignored, as by nohup, bash cannot trap
    process = start("run", "--stats", "--", "bash", "-c", waits)
    signal.signal(number, before)
    assert process.stdout.readline() == "up\n"
    os.kill(process.pid, number)
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode) == ("got\n", 5)
    assert len(processes(errors)) == 1


def test_nothing_stays_behind_where_the_program_dies_of_a_signal(hakmem, tmp_path):
    for option in ("--stats", "--leaks"):
        hakmem("run", option, "--", "bash", "-c", "kill -KILL $$", TMPDIR=str(tmp_path))
        assert list(tmp_path.iterdir()) == []

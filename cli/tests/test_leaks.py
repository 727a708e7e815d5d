"""hakmem run --profile and --leaks: what a program holds at exit, and an exit code for what grew."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from heap import Heap, text_of
from processes import with_own

PROGRAM = """
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void *kept[1 << 16];
__attribute__((noinline)) void keep_small(int blocks) {
  for (int i = 0; i < blocks; i++) memset(kept[i] = malloc(1000), 1, 1000);
}
__attribute__((noinline)) void *keep_large(size_t bytes) { return memset(malloc(bytes), 1, bytes); }
static void *large;
int main(int count, char **words) { /* small blocks, bytes of a large one, how it ends */
  keep_small(atoi(words[1]));
  if (atoi(words[2]) > 0) large = keep_large((size_t)atoi(words[2]));
  if (count > 3 && strcmp(words[3], "fork") == 0) {
    if (fork() == 0) {
      large = keep_large(64 << 20);
      exit(0);
    }
    wait(NULL);
    if (atoi(words[1]) == 1) _exit(0);
  }
  if (count > 3 && strcmp(words[3], "abort") == 0) abort();
  if (count > 3 && strcmp(words[3], "call") == 0) syscall(SYS_exit_group, 0);
  if (count > 3 && strcmp(words[3], "sleep") == 0) pause();
  return count > 3 ? atoi(words[3]) : 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    directory = tmp_path_factory.mktemp("leaks")
    (directory / "program.c").write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-g", "-o", directory / "program", directory / "program.c"], check=True)
    return str(directory / "program")


def live(text: str) -> str:
    return re.search(r"live (\S+ \S+),", text).group(1)


def test_what_is_live_at_exit_is_shown_by_site(hakmem, program):
    result = hakmem("run", "--leaks", "--", program, "8000", str(16 << 20))
    assert result.returncode == 0
    assert result.stdout == ""
    assert "hakmem: live at exit" in result.stderr
    assert re.search(r"16\.0 MiB\s.*keep_large", result.stderr)
    assert re.search(r"MiB\s.*keep_small", result.stderr)


def test_profile_leaves_the_snapshot_alone(hakmem, program, tmp_path):
    file = tmp_path / "heap"
    result = hakmem("run", "--profile", str(file), "--", program, "0", str(16 << 20))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    shown = json.loads(hakmem("profile", "--json", str(file)).stdout)
    assert shown["large"] == 16 << 20


def test_the_snapshots_name_may_have_the_processs_number(hakmem, tmp_path):
    result = hakmem("run", "--profile", str(tmp_path / "heap.%p"), "--", "bash", "-c", "echo $$")
    assert (result.returncode, result.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == [f"heap.{int(result.stdout)}"]


@pytest.mark.parametrize("option", ["--profile", "--blackbox", "--stats-file"])
def test_no_place_for_a_file_is_told_before_the_program_runs(hakmem, tmp_path, option):
    file = tmp_path / "none" / "file"
    result = hakmem("run", option, str(file), "--", "touch", str(tmp_path / "ran"))
    assert (result.returncode, result.stderr) == (1, f"hakmem: {file}: no such directory\n")
    assert not list(tmp_path.iterdir())


def test_a_place_where_nothing_may_be_written_is_told_before_the_program_runs(hakmem, tmp_path):
    """Of /proc not even root may."""
    result = hakmem("run", "--profile", "/proc/heap", "--", "touch", str(tmp_path / "ran"))
    assert result.returncode == 1 and re.fullmatch(r"hakmem: /proc/heap: .*\n", result.stderr)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--profile", "--stats-file"])
def test_what_is_wanted_beside_is_shown_where_a_file_cannot_be_written_in_the_end(hakmem, program, option):
    result = hakmem("run", "--leaks", option, "/dev/full", "--", program, "0", str(16 << 20))
    assert result.returncode == 1
    assert "hakmem: /dev/full: No space left on device\n" in result.stderr
    assert re.search(r"16\.0 MiB\s.*keep_large", result.stderr)
    assert hakmem("run", option, "/dev/full", "--", program, "0", "0", "7").returncode == 7


def test_a_child_does_not_take_the_place_of_the_program(hakmem, program, tmp_path):
    file = tmp_path / "heap"
    assert hakmem("run", "--profile", str(file), "--", program, "0", str(16 << 20), "fork").returncode == 0
    assert json.loads(hakmem("profile", "--json", str(file)).stdout)["large"] == 16 << 20


def test_a_childs_snapshot_is_not_taken_for_the_programs(hakmem, program):
    result = hakmem("run", "--leaks", "--", program, "1", "0", "fork")
    assert result.returncode == 1
    assert "ended with code 0 and left no snapshot" in result.stderr


@pytest.mark.parametrize(("option", "code"), [(("--leaks",), 1), (("--profile", "heap"), 1), (("--stats",), 0)])
def test_an_end_by_the_system_call_is_named_among_the_reasons(hakmem, program, tmp_path, monkeypatch, option, code):
    monkeypatch.chdir(tmp_path)
    result = hakmem("run", *option, "--", program, "8000", "0", "call")
    what = "statistics" if "--stats" in option else "snapshot"
    assert result.returncode == code
    why = "it was killed, ended by _exit or by the system call itself, as Go programs do, "
    assert result.stderr.startswith(f"hakmem: program ended with code 0 and left no {what}: {why}")


@pytest.mark.parametrize("grown", [False, True])
def test_growth_fails_the_run(hakmem, program, tmp_path, grown):
    file = tmp_path / "before"
    assert hakmem("run", "--profile", str(file), "--", program, "8000", str(16 << 20)).returncode == 0
    after = (16 << 20) + (4 << 20 if grown else 0)
    result = hakmem("run", "--leaks", "--baseline", str(file), "--", program, "8000", str(after))
    assert result.returncode == (1 if grown else 0)
    assert re.search(r"^[1-9]\d* sites; ", result.stderr, re.MULTILINE), "they are all counted, told or not"
    if grown:
        assert re.search(r"\+4\.0 MiB\s.*keep_large", result.stderr)
    else:
        assert "no site holds more" in result.stderr


def test_growth_in_a_programs_own_hakmem_fails_the_run(hakmem, tmp_path):
    """Which leaves malloc to libc: another one that is preloaded would write its own snapshot there."""
    program, file = str(with_own(tmp_path)), tmp_path / "before"
    assert hakmem("run", "--profile", str(file), "--", program, "10000", "10000").returncode == 0
    result = hakmem("run", "--leaks", "--baseline", str(file), "--", program, "80000", "10000")
    assert result.returncode == 1 and re.search(r"MiB\s.*hold_own", result.stderr)
    assert "hold_other" not in result.stderr and "malloc is libc's" in result.stderr


def test_a_baseline_that_cannot_be_used_is_told_before_the_program_runs(hakmem, tmp_path):
    broken, unsampled = tmp_path / "broken", tmp_path / "unsampled"
    broken.write_text("nonsense")
    heap = Heap({64: [2] * 10}).snapshot([])
    heap.rate = 0
    unsampled.write_text(text_of(heap))
    for file, why in ((broken, "neither a hakmem snapshot"), (unsampled, "no blocks were sampled"), (Path("/proc/self/mem"), "error")):
        result = hakmem("run", "--leaks", "--baseline", str(file), "--", "touch", str(tmp_path / "ran"))
        assert result.returncode == 2 and result.stderr.startswith(f"hakmem: {file}: ") and result.stderr.count("\n") == 1
        assert why in result.stderr
        assert not (tmp_path / "ran").exists()


def test_what_shrank_does_not(hakmem, program, tmp_path):
    file = tmp_path / "before"
    hakmem("run", "--profile", str(file), "--", program, "0", str(32 << 20))
    assert hakmem("run", "--leaks", "--baseline", str(file), "--", program, "0", str(16 << 20)).returncode == 0


def test_the_programs_own_end_comes_first(hakmem, program, tmp_path):
    file = tmp_path / "before"
    hakmem("run", "--profile", str(file), "--", program, "0", "0")
    grown = ("run", "--leaks", "--baseline", str(file), "--", program, "0", str(16 << 20))
    assert hakmem(*grown, "7").returncode == 7
    result = hakmem(*grown, "abort")
    assert result.returncode == -signal.SIGABRT
    assert "died of SIGABRT and left no snapshot" in result.stderr


def test_a_signal_is_passed_on(start, program):
    process = start("run", "--leaks", "--", program, "0", "0", "sleep")
    deadline = time.monotonic() + 60
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    while True:
        child = open(children).read().split()
        if child and open(f"/proc/{child[0]}/comm").read() == "program\n":
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == -signal.SIGTERM


@pytest.mark.parametrize(
    "words", [("--compare", "--leaks"), ("--compare", "--profile", "x"), ("--baseline", "/dev/null")]
)
def test_what_does_not_go_together(hakmem, words):
    assert hakmem("run", *words, "--", "true").returncode == 2

"""hakmem blackbox and hakmem run --blackbox: what is known of a process that was killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import zlib
from pathlib import Path

import pytest
from processes import LIBRARY

from hakmem import blackbox

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept[1 << 20];
static int count;
__attribute__((noinline)) void leak_blocks(int blocks) {
  for (int i = 0; i < blocks; i++) memset(kept[count++] = malloc(1000), 1, 1000);
}
__attribute__((noinline)) void hold_blocks(int blocks) {
  for (int i = 0; i < blocks; i++) memset(kept[count++] = malloc(500), 1, 500);
}
int main(int words, char **word) { /* thousands of blocks that leak, microseconds between them */
  hold_blocks(10000);
  for (int i = 0; i < atoi(word[1]); i++) {
    leak_blocks(1000);
    if (words > 2) usleep(atoi(word[2]));
  }
  puts("ready");
  fflush(stdout);
  pause();
}
"""
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    directory = tmp_path_factory.mktemp("blackbox")
    (directory / "program.c").write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-g", "-o", directory / "program", directory / "program.c"], check=True)
    return str(directory / "program")


def begin(environment, file, *command: str, **options) -> subprocess.Popen:
    variables = environment | {"LD_PRELOAD": str(LIBRARY), "HAKMEM_BLACKBOX": str(file)}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True, **options)


def wait_for(file: Path, condition, what: str) -> blackbox.Box:
    deadline = time.monotonic() + 60
    while True:
        if file.exists() and blackbox.is_box(file.read_bytes()):
            box = blackbox.read(str(file))
            if box.entries and condition(box):
                return box
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def killed(environment, program, tmp_path) -> Path:
    """The box of a program that was killed with 40 MB of one function's blocks."""
    file = tmp_path / "box"
    with begin(environment, file, program, "40") as process:
        assert process.stdout.readline() == "ready\n"
        ready = time.time()  # an entry before may tell of a part
        wait_for(file, lambda box: box.newest.time >= ready and box.newest.resident > 40 << 20, "no entry of what has leaked")
        process.kill()
    return file


def test_who_leaked_is_told_after_a_kill(hakmem, killed):
    shown = json.loads(hakmem("blackbox", "--json", str(killed)).stdout)
    line = shown["profile"]["lines"][0]
    assert line["frames"][0]["function"] == "leak_blocks"
    assert abs(line["live"] - 40_960_000) < 5 * line["error"] + 1_000_000
    assert shown["resident"] > 40 << 20
    counted = sum(row["counted"] or 0 for row in shown["profile"]["table"]["rows"])
    assert counted == shown["profile"]["table"]["resident"] == shown["resident"]
    assert shown["profile"]["table"]["verdict"]["kind"] == "program"
    text = hakmem("blackbox", str(killed)).stdout
    assert re.search(r"MiB\s.*leak_blocks", text)
    assert "resident set" in text and "the program holds it" in text


@pytest.mark.parametrize("first", [True, False])
def test_of_two_copies_the_one_with_the_blocks_writes(hakmem, environment, program, tmp_path, first):
    copy, file = tmp_path / "copy.so", tmp_path / "box"
    shutil.copy(LIBRARY, copy)
    both = [str(LIBRARY), str(copy)] if first else [str(copy), str(LIBRARY)]
    variables = environment | {"LD_PRELOAD": ":".join(both), "HAKMEM_BLACKBOX": str(file)}
    with subprocess.Popen([program, "40"], env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        ready = time.time()
        wait_for(file, lambda box: box.newest.time >= ready and box.newest.resident > 40 << 20, "no entry of what has leaked")
        process.kill()
    assert "leak_blocks" in hakmem("blackbox", str(file)).stdout


def test_entries_are_listed_and_taken_out(hakmem, killed, tmp_path):
    listed = json.loads(hakmem("blackbox", "--all", "--json", str(killed)).stdout)
    assert len(listed) >= 2
    assert [each["entry"] for each in listed] == sorted((each["entry"] for each in listed), reverse=True)
    text = hakmem("blackbox", "--all", str(killed)).stdout
    assert all(f"{each['resident'] / (1 << 20):.1f} MiB" in text for each in listed)
    first, last = tmp_path / "first", tmp_path / "last"
    assert hakmem("blackbox", "--entry", str(listed[-1]["entry"]), "--save", str(first), str(killed)).returncode == 0
    assert hakmem("blackbox", "--save", str(last), str(killed)).returncode == 0
    result = hakmem("diff", str(first), str(last))
    assert result.returncode == 1
    assert "leak_blocks" in result.stdout
    assert hakmem("blackbox", "--entry", "1000", str(killed)).returncode == 1


def test_other_commands_read_a_box(hakmem, killed, tmp_path):
    assert "leak_blocks" in hakmem("profile", str(killed)).stdout
    assert hakmem("profile", str(killed), "--pprof", str(tmp_path / "out")).returncode == 0
    assert hakmem("diff", str(killed), str(killed)).returncode == 0
    assert "resident set" in hakmem("resident", str(killed)).stdout


def _slots(file: Path) -> list[tuple[int, int]]:
    """The number of each entry, and where its text begins."""
    data, found = file.read_bytes(), []
    facts = dict(line.split(b" ", 1) for line in data.split(b"\0", 1)[0].splitlines())
    head, size = int(facts[b"head_bytes"]), int(facts[b"slot_bytes"])
    for slot in range(int(facts[b"slots"])):
        words = data[head + slot * size :].split(b"\n", 1)[0].split()
        if words[:1] == [b"entry"]:
            found.append((int(words[1]), 2 * head + slot * size))
    return sorted(found)


def test_a_torn_entry_is_passed_over(hakmem, killed):
    newest, start = _slots(killed)[-1]
    data = bytearray(killed.read_bytes())
    data[start + 100] ^= 1
    killed.write_bytes(data)
    shown = json.loads(hakmem("blackbox", "--json", str(killed)).stdout)
    assert (shown["entry"], shown["torn"]) == (newest - 1, 1)


def test_a_box_without_a_whole_entry_is_said(hakmem, killed):
    data = bytearray(killed.read_bytes())
    for _, start in _slots(killed):
        data[start + 100] ^= 1
    killed.write_bytes(data)
    result = hakmem("blackbox", str(killed))
    assert result.returncode == 1
    assert "no complete entry" in result.stderr
    killed.write_text("no box")
    assert "not a black box" in hakmem("blackbox", str(killed)).stderr


def test_what_is_taken_for_whole():
    """A head, and a text that has its length and sum."""
    text = b"hakmem-snapshot 1\nend\n"
    start = b"hakmem-blackbox 1\nprocess 9\nhead_bytes 256\nslots 2\nslot_bytes 512\n"

    def slot(number: int, size: int, total: int) -> bytes:
        head = f"entry {number} {size} {total} 1500 2 3 4 time more\n".encode()
        return (head.ljust(256, b"\0") + text).ljust(512, b"\0")

    whole = slot(7, len(text), zlib.crc32(text))
    for other in (slot(8, len(text) + 1, zlib.crc32(text)), slot(8, len(text), zlib.crc32(text) ^ 1), slot(8, 4096, 0)):
        box = blackbox.parse(start.ljust(256, b"\0") + whole + other)
        entry = box.newest
        assert (entry.number, entry.time, entry.resident, entry.group, entry.limit) == (7, 1.5, 2, 3, 4)
        assert (entry.why, entry.text, box.process, box.torn) == ("time", text, 9, 1)


def test_run_shows_what_a_killed_program_held(hakmem, start, program, tmp_path):
    file = tmp_path / "box"
    process = start("run", "--blackbox", str(file), "--", program, "40")
    box = wait_for(file, lambda box: box.newest.resident > 40 << 20, "no entry of what has leaked")
    os.kill(box.process, signal.SIGKILL)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert output == "ready\n"
    assert "died of SIGKILL" in errors
    assert re.search(r"MiB\s.*leak_blocks", errors)
    assert "the program holds it" in errors


def test_run_says_nothing_of_a_program_that_ends(hakmem, tmp_path):
    file = tmp_path / "box.%p"
    result = hakmem("run", "--blackbox", str(file), "--", "sh", "-c", "exit 3")
    assert (result.returncode, result.stdout, result.stderr) == (3, "", "")
    assert len(list(tmp_path.iterdir())) == 1


def test_run_finds_a_program_by_a_relative_name(hakmem, program, tmp_path, monkeypatch):
    shutil.copy("/bin/true", tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    assert hakmem("run", "--blackbox", str(tmp_path / "box"), "--", "./own").returncode == 0
    assert hakmem("run", "--profile", str(tmp_path / "heap"), "--", "./own").returncode == 0


@pytest.mark.parametrize("other", ["--compare", "--leaks"])
def test_what_does_not_go_together(hakmem, other, tmp_path):
    assert hakmem("run", "--blackbox", str(tmp_path / "box"), other, "--", "true").returncode == 2


def test_one_is_taken_near_the_limit(environment, program, tmp_path):
    """The control group is files of the test's, which a process in a mount namespace of its own takes for the kernel's."""
    group, file = tmp_path / "group", tmp_path / "box"
    group.mkdir()
    limit, current = group / "memory.max", group / "memory.current"
    limit.write_text(f"{1 << 30}\n")
    current.write_text(f"{1 << 29}\n")
    command = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /sys/fs/cgroup && exec "$@"', str(group)]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("mounts take root")
    if "0::/\n" not in Path("/proc/self/cgroup").read_text():
        pytest.skip("the test is in a group of its own")
    seen = {}  # the file has room for four entries of all kinds

    def look(box: blackbox.Box) -> int:
        seen.update({entry.number: entry for entry in box.entries if entry.why == "limit"})
        return len(seen)

    with begin(environment, file, *command, program, "1") as process:
        try:
            assert process.stdout.readline() == "ready\n"
            for percent, taken in ((79, 0), (81, 1), (85, 1), (90, 2), (96, 3), (99, 3)):
                current.write_text(f"{percent * (1 << 30) // 100}\n")
                wait_for(file, lambda box, least=taken: look(box) >= least, f"at {percent} % there is no new entry")
                time.sleep(0.5)  # one too many would come
                assert look(blackbox.read(str(file))) == taken, percent
            assert all(entry.limit == 1 << 30 and entry.group >= 0.8 * entry.limit for entry in seen.values())
        finally:
            process.kill()


@pytest.fixture
def control_group():
    """One with a limit of 96 MiB."""
    older = (GROUPS / "memory" / "memory.limit_in_bytes").exists()
    folder = (GROUPS / "memory" if older else GROUPS) / f"hakmem-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error.strerror}")
    try:
        limit, swap = ("memory.limit_in_bytes", "memory.swappiness") if older else ("memory.max", "memory.swap.max")
        if not (folder / limit).exists():
            pytest.skip("control groups do not bound memory here")
        (folder / limit).write_text(str(96 << 20))
        if (folder / swap).exists():
            (folder / swap).write_text("0")
        yield folder
    finally:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def test_killed_by_the_limit(hakmem, environment, program, control_group, tmp_path):
    file = tmp_path / "box"

    def enter() -> None:
        (control_group / "cgroup.procs").write_text(str(os.getpid()))

    with begin(environment, file, program, "1000", "20000", preexec_fn=enter) as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
        ended = time.time()
    newest = blackbox.read(str(file)).newest
    assert ended - newest.time <= 10 or newest.group >= 0.95 * newest.limit
    shown = json.loads(hakmem("blackbox", "--json", str(file)).stdout)
    assert shown["profile"]["lines"][0]["frames"][0]["function"] == "leak_blocks"
    assert shown["group_limit"] == 96 << 20

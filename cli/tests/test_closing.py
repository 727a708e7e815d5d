"""Whose blocks are when their library was closed, and another lies where it was."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from processes import compiled, running

from hakmem import outside, outside_events
from hakmem.memory import Process

HERE = Path(__file__).parent
MADE = 6 * 10_000 * 1024  # bytes that each of the two libraries has taken


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> list[Path]:
    """The program, and two libraries."""
    folder = tmp_path_factory.mktemp("closing")
    program = compiled(folder, HERE / "closing.c")
    for which, frame in (("one", 256), ("two", 1024)):
        options = ["-shared", "-fPIC", "-fomit-frame-pointer", f"-DWHICH={which}", f"-DFRAME={frame}"]
        compiled(folder, HERE / "closing_library.c", *options).rename(folder / f"{which}.so")
    return [program, folder / "one.so", folder / "two.so"]


def check(run: subprocess.CompletedProcess) -> None:
    assert run.returncode == 0, run.stderr
    lines = json.loads(run.stdout)["lines"]
    for which in ("one", "two"):
        mine = [line for line in lines if line["frames"] and line["frames"][0]["function"] == f"{which}_inner"]
        bytes_, error = sum(line["live"] for line in mine), sum(line["error"] ** 2 for line in mine) ** 0.5
        assert abs(bytes_ - MADE) < 5 * error
        for line in mine:
            assert [frame["function"] for frame in line["frames"][1:4]] == ["outer", "use", "main"]


def test_a_running_process_tells(hakmem, command):
    with running(*command) as process:
        check(hakmem("profile", str(process.pid), "--json"))


def test_libraries_given_by_a_path_that_is_not_whole(hakmem, command):
    program, one, two = command
    with running(program, f"./{one.name}", f"./{two.name}", folder=program.parent) as process:
        check(hakmem("profile", str(process.pid), "--json"))


def test_a_snapshot_tells(hakmem, command, tmp_path):
    file = tmp_path / "heap"
    with running(*command, "end", HAKMEM_PROFILE=str(file)) as process:
        process.wait()
    check(hakmem("profile", str(file), "--json"))


@pytest.mark.parametrize("where", ["end", "apart"])
def test_a_library_that_comes_back_has_its_numbers_again(command, tmp_path, where):
    file = tmp_path / "heap"
    with running(*command, where, HAKMEM_PROFILE=str(file)) as process:
        process.wait()
    sites = [line.split()[2:] for line in file.read_text().splitlines() if line.startswith("site ")]  # parent and address
    assert sites
    assert len(sites) == len({tuple(site) for site in sites})


def test_a_library_with_ever_new_names_is_one(command, tmp_path):
    file, copy = tmp_path / "heap", tmp_path / "copy.so"
    shutil.copy(command[1], copy)
    with running(*command[:2], copy, "end", HAKMEM_PROFILE=str(file)) as process:
        process.wait()
    assert sum(line.startswith("mapping ") and " 4000" in line for line in file.read_text().splitlines()) == 1


def test_a_library_that_is_opened_while_it_is_counted_has_names(start, command, tmp_path):
    program = compiled(tmp_path, HERE / "opening.c")
    with running(program, command[1]) as process:
        counting = start("profile", "--events", "4", "--json", str(process.pid))
        reader = outside.Reader(Process(process.pid))
        while counting.poll() is None and not reader.names.number(reader.names.place(outside_events.ARMED)):
            time.sleep(0.01)
        process.stdin.write("\n")
        process.stdin.flush()
        output, errors = counting.communicate(timeout=60)
    assert counting.returncode == 0, errors
    lines = json.loads(output)["allocated"]["lines"]
    assert "one_inner" in [line["frames"][0]["function"] for line in lines if line["frames"]]

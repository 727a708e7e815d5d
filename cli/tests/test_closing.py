"""Whose blocks are when their library was closed, and another lies where it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from processes import compiled, running

HERE = Path(__file__).parent
MADE = 6 * 10_000 * 1024  # bytes that each of the two libraries has taken


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> list[Path]:
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

"""bench/drawn: what is drawn, and how each run of it ends."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ends

from hakmem import preload
from hakmem.bench.allocators import Allocator
from hakmem.errors import Failure

FILE = Path(__file__).parents[2] / "bench" / "drawn" / "drawn.py"


@pytest.fixture
def drawn(bench_script):
    return bench_script("drawn/drawn.py")


def allocators(*names: str) -> list[Allocator]:
    return [Allocator(name, name, "", "", None) for name in names]


def test_what_is_drawn_depends_on_the_seed_alone(drawn, monkeypatch):
    monkeypatch.setattr(drawn, "run", lambda *_: (0.1, 0.1, 1, 1))

    def every(seed: int, repetitions: int, *names: str) -> list[dict]:
        options = argparse.Namespace(build=Path(), count=5, seconds=0.1, repetitions=repetitions, timeout=1, seed=seed)
        return [line["drawn"] for line in drawn.runs(options, allocators(*names))]

    few = every(1, 1, "system", "hakmem")
    assert few == every(1, 3, "system", "hakmem") == every(1, 1, "system", "hakmem", "peer") != every(2, 1, "system", "hakmem")


def sleeping(program: Path) -> Path:
    """Makes a program, and names the file that has its process's number while it runs."""
    pid = program.with_suffix(".pid")
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho $$ >{pid}.new\nmv {pid}.new {pid}\nexec sleep 600\n")
    program.chmod(0o755)
    return pid


def test_a_draw_is_not_mixed_with_another(drawn, monkeypatch, tmp_path):
    file = tmp_path / "draw"
    file.write_text("{}\n")
    monkeypatch.setattr(sys, "argv", ["drawn.py", "--check", "--output", str(file)])
    monkeypatch.setattr(drawn.allocators, "known", lambda *_: [])
    monkeypatch.setattr(drawn.allocators, "choose", lambda *_: [])
    with pytest.raises(Failure, match="holds a draw already"):
        drawn.main()
    assert file.read_text() == "{}\n"


def test_a_run_that_takes_too_long_is_told_and_ended(drawn, tmp_path):
    program = tmp_path / "program"
    pid = sleeping(program)
    with pytest.raises(Failure, match=r"^system: \S+program 1 takes more than 0\.5 s$"):
        drawn.run(program, {"slots": 1}, *allocators("system"), 0.5)
    assert ends(pid.read_text())


def test_no_process_is_left_when_it_is_ended(tmp_path):
    pid = sleeping(tmp_path / "bench" / "drawn" / "drawn")
    command = [sys.executable, FILE, "--build", tmp_path, "--library", preload.library(), "--allocators", "hakmem"]
    with subprocess.Popen(command, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while not pid.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.terminate()
    assert ends(pid.read_text()) and process.returncode == 143

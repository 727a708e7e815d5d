"""bench/drawn: what is drawn, and how each run of it ends."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pytest

from hakmem.bench.allocators import Allocator
from hakmem.errors import Failure


@pytest.fixture
def drawn():
    """drawn.py"""
    file = Path(__file__).parents[2] / "bench" / "drawn" / "drawn.py"
    spec = importlib.util.spec_from_file_location("drawn", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def allocators(*names: str) -> list[Allocator]:
    return [Allocator(name, name, "", "", None) for name in names]


def test_what_is_drawn_depends_on_the_seed_alone(drawn, monkeypatch):
    monkeypatch.setattr(drawn, "run", lambda *_: (0.1, 0.1, 1, 1))

    def every(seed: int, repetitions: int, *names: str) -> list[dict]:
        options = argparse.Namespace(build=Path(), count=5, seconds=0.1, repetitions=repetitions, timeout=1, seed=seed)
        return [line["drawn"] for line in drawn.runs(options, allocators(*names))]

    few = every(1, 1, "system", "hakmem")
    assert few == every(1, 3, "system", "hakmem") == every(1, 1, "system", "hakmem", "peer") != every(2, 1, "system", "hakmem")


def test_a_run_that_takes_too_long_is_told_and_ended(drawn, tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $$ >{tmp_path / 'pid'}\nexec sleep 600\n")
    program.chmod(0o755)
    with pytest.raises(Failure, match=r"^system: \S+program 1 takes more than 0\.5 s$"):
        drawn.run(program, {"slots": 1}, *allocators("system"), 0.5)
    left = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    assert not left.exists() or left.read_text().split()[2] == "Z"

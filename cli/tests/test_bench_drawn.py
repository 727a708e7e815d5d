"""bench/drawn: what is drawn."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pytest

from hakmem.bench.allocators import Allocator


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

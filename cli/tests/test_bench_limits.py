"""bench/limits: whom it runs, and the table of times."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def limits(bench_script) -> ModuleType:
    return bench_script("limits/limits.py")


@pytest.fixture
def rows(limits, monkeypatch, capsys) -> Callable[..., list[str]]:
    """The rows of the table, where each run of the system's malloc takes so long and ends as is said, hakmem's twice as long."""

    def table(seconds: float, without: Iterable[str] = ("lived",)) -> list[str]:
        left = list(without) * 9

        def run(_program, environment: dict[str, str], limit: int | None, *_) -> limits.Run:
            outcome = left.pop() if limit is None and not environment else "lived"
            return limits.Run(outcome, 1, seconds * (2 if environment else 1), 100, "")

        monkeypatch.setattr(limits, "run", run)
        limits.times_at_limits(["heaps-1"], {"system": {}, "hakmem": {"LD_PRELOAD": "it"}}, Path())
        return capsys.readouterr().out.splitlines()[2:]

    return table


def test_short_times_are_not_rounded_before_they_are_compared(rows):
    for seconds in (0.034, 0.004, 9.0):
        system, hakmem = rows(seconds)
        assert system == "| heaps-1 | system | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 |"
        assert hakmem == "| heaps-1 | hakmem | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 |"


def test_the_first_allocator_may_fail_without_a_limit(rows):
    system, hakmem = rows(0.5, ("lived", "lived", "refused"))
    assert system == "| heaps-1 | system | 1.00 (2 of 3) | 1.00 | 1.00 | 1.00 | 1.00 |" and hakmem.endswith("| 2.00 |")
    assert rows(0.5, ("refused",)) == ["| heaps-1 | system | fails without a limit |"]


def test_an_allocator_that_is_not_here_is_refused(limits, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(limits, "Group", lambda _: argparse.Namespace(end=lambda: None))
    monkeypatch.setattr("sys.argv", ["limits.py", "--build", str(tmp_path), "--programs", "heaps-1", "--allocators", "systm"])
    monkeypatch.setattr(limits.subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(limits.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit, match="2"):
        limits.main()
    assert "no allocator systm; there are system, hakmem" in capsys.readouterr().err

#!/usr/bin/env python3
"""Compares the table of `hakmem resident` with what the kernel reports for the same process, for all programs of the benchmark.

  resident.py [--workloads LIST] [--full] [--seconds N] [--build DIR]
                                      with the command line's own Python: .venv/bin/python bench/resident/resident.py

Each workload runs under hakmem, repeatedly if it is short. Meanwhile each of its processes that has the library is stopped now and
then, read in both ways, and continued. Each workload has a row with the largest difference, the resident set at that time, and the
largest resident set. Exit status 1 if a difference is above max(0.5 %, 1 MiB), or if nothing was read. docs/insight.md has the table.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hakmem import top
from hakmem.bench import plan
from hakmem.bench.allocators import Allocator
from hakmem.bench.memory import below
from hakmem.bench.runner import RunFailed, Runner
from hakmem.bench.workloads import Workload
from hakmem.runs import HAKMEM

MIB = 1 << 20
SHARE, LEAST = 0.005, MIB
ENOUGH, RUNS_MOST = 20, 20  # readings that are enough; the most runs to get them


@dataclass
class Worst:
    readings: int = 0
    largest: int = 0  # the largest resident set
    resident: int = 0  # the resident set at the largest difference
    difference: int = 0
    rest: int = 0  # the most in the row for what changed while it was read

    @property
    def holds(self) -> bool:
        return self.difference <= max(SHARE * self.resident, LEAST)


def rss(process: int) -> int:
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(re.findall(r"^Rss:\s+(\d+) kB", text, re.M)[0]) << 10


def stopped(process: int) -> bool:
    """Whether all its threads are stopped, except those that have ended. Raises ProcessLookupError if none is left, as may happen."""
    states = [each.read_text().rpartition(")")[2].split()[0] for each in Path(f"/proc/{process}/task").glob("*/stat")]
    left = [state for state in states if state not in "XZ"]
    if not left:
        raise ProcessLookupError(process)
    return all(state in "tT" for state in left)


def read(process: int, worst: Worst) -> None:
    os.kill(process, signal.SIGSTOP)
    try:
        while not stopped(process):
            time.sleep(0.001)
        kernel = rss(process)
        each = top.look(process)
    finally:
        os.kill(process, signal.SIGCONT)
    if each.table is None:
        return
    worst.readings += 1
    worst.largest = max(worst.largest, kernel)
    difference = abs(sum(row.resident or 0 for row in each.table.rows) - kernel)
    worst.rest = max(worst.rest, abs(each.table.of("moved")))
    if difference >= worst.difference:
        worst.difference, worst.resident = difference, kernel


@contextlib.contextmanager
def reading(process: int, found: Worst, seconds: float) -> Iterator[None]:
    """Reads the process and its descendants repeatedly while the block runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            for each in {process, *below(process)}:
                with contextlib.suppress(OSError, IndexError):
                    if "libhakmem" in Path(f"/proc/{each}/maps").read_text(errors="replace"):
                        read(each, found)

    reader = threading.Thread(target=run)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()


def look(runner: Runner, workload: Workload, allocator: Allocator, seconds: float) -> Worst:
    found = Worst()
    runner.prepare(workload)
    for _ in range(RUNS_MOST):
        runner.look(workload, allocator, lambda process: reading(process, found, seconds))
        if found.readings >= ENOUGH:
            break
    return found


def plan_of(given: argparse.Namespace, output: str) -> plan.Plan:
    root = Path(__file__).parents[2]
    build = Path(given.build or root / "build").resolve()
    choices = plan.Choices(
        workloads=given.workloads.split(","), allocators=[HAKMEM], threads=[], repetitions=1, brief=not given.full,
        timeout=600, seed=1, library=str(build / "libhakmem.so"), baseline=None, without=[],
    )  # fmt: skip
    return plan.make(choices, plan.Places(root, build, Path(output)))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workloads", default="program", help="names, families, groups, or patterns of them")
    options.add_argument("--full", action="store_true", help="in their full size")
    options.add_argument("--seconds", type=float, default=0.002, help="look so often")
    options.add_argument("--build", help="where libhakmem.so is")
    given = options.parse_args()
    holds = True
    print("| workload | readings | largest resident set, MiB | largest difference, KiB | at, MiB | changed meanwhile, KiB |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        of = plan_of(given, folder)
        runner = Runner(of)
        with runner.heeding_signals():
            for workload in of.workloads:
                try:
                    worst = look(runner, workload, of.allocators[0], given.seconds)
                except RunFailed as failed:
                    print(f"{workload.name}: {failed}", file=sys.stderr)
                    holds = False
                    continue
                holds &= worst.holds and worst.readings > 0
                sizes = f"{worst.largest / MIB:.1f} | {worst.difference >> 10}{'' if worst.holds else ' !'} | {worst.resident / MIB:.1f}"
                print(f"| {workload.name} | {worst.readings} | {sizes} | {worst.rest >> 10} |", flush=True)
    return 0 if holds else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

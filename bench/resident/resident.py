#!/usr/bin/env python3
"""Holds the table of `hakmem resident` against what the kernel says of the same process, for all programs of the benchmark.

  resident.py [--workloads LIST] [--seconds N] [-- OPTION...]     with the command line's own Python: .venv/bin/python bench/resident/resident.py

The benchmark runs once with hakmem alone, while every process that has the library is stopped now and then, read by both,
and let go.  A row is for a program: the largest difference, with the resident set at that time.  Exit status 1 where one is above
max(0.5 %, 1 MiB), or nothing was read.  What is told is in docs/insight.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hakmem import top
from hakmem.bench.memory import below

MIB = 1 << 20
SHARE, LEAST = 0.005, MIB


@dataclass
class Worst:
    readings: int = 0
    resident: int = 0
    difference: int = 0
    rest: int = 0  # in the row of what changed between two looks, at most

    @property
    def holds(self) -> bool:
        return self.difference <= max(SHARE * self.resident, LEAST)


def rss(process: int) -> int:
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(re.findall(r"^Rss:\s+(\d+) kB", text, re.M)[0]) << 10


def stopped(process: int) -> bool:
    """All of its threads."""
    states = [each.read_text().rpartition(")")[2].split()[0] for each in Path(f"/proc/{process}/task").glob("*/stat")]
    return bool(states) and all(state in "tT" for state in states)


def read(process: int, found: dict[str, Worst]) -> None:
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
    worst = found.setdefault(each.name, Worst())
    worst.readings += 1
    difference = abs(sum(row.resident or 0 for row in each.table.rows) - kernel)
    worst.rest = max(worst.rest, each.table.of("moved"))
    if difference >= worst.difference:
        worst.difference, worst.resident = difference, kernel


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workloads", default="*")
    options.add_argument("--seconds", type=float, default=0.2, help="look so often")
    options.add_argument("bench", nargs="*", help="what `hakmem bench` is given, after --")
    given = options.parse_args()
    found: dict[str, Worst] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [Path(sys.executable).parent / "hakmem", "bench", "--repetitions", "1", "--workloads", given.workloads]
        with subprocess.Popen([*command, "--allocators", "hakmem", "--output", folder, *given.bench], stdout=subprocess.DEVNULL) as bench:
            while bench.poll() is None:
                for process in set(below(bench.pid)):
                    with contextlib.suppress(OSError, IndexError):
                        if "libhakmem" in Path(f"/proc/{process}/maps").read_text(errors="replace"):
                            read(process, found)
                time.sleep(given.seconds)
    print("| program | readings | resident, MiB | difference, KiB | changed meanwhile, KiB |\n|---|---|---|---|---|")
    for name, worst in sorted(found.items()):
        mark = "" if worst.holds else " !"
        print(f"| {name} | {worst.readings} | {worst.resident / MIB:.1f} | {worst.difference >> 10}{mark} | {worst.rest >> 10} |")
    return 0 if found and all(worst.holds for worst in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

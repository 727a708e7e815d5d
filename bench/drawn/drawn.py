#!/usr/bin/env python3
"""Draws workloads at random and runs them under every allocator, to find what none of the designed workloads shows.

  drawn.py --build build --count 100 --output FILE        writes a line to FILE for each workload: what it is, and what each run took
  drawn.py --read FILE                                    prints geometric means, and where hakmem is furthest behind
  drawn.py --build build --check                          runs a few small ones: exit status 1 if one fails

What is drawn depends only on --seed, so it is the same on two machines or for two commits.  The number of steps is chosen so that the
system's malloc takes --seconds, and is written to FILE.  Needs the command line (make build) and the peers (make peers).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from hakmem.bench import allocators
from hakmem.bench.allocators import Allocator
from hakmem.runs import HAKMEM, SYSTEM, Failure, Launch

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ["replace", "replace", "stack", "queue", "forward", "reverse", "shuffled", "grow", "young", "young", "shift"]
LEAST_STEPS, MOST_STEPS = 20_000, 20_000_000
MEASURES = {"seconds": 0, "peak": 2}
WORST = 20  # rows


def draw(by: random.Random) -> dict[str, str | int]:
    threads = by.choice([1, 1, 1, 2, 2, 4, 8])
    smallest = by.choice([8, 16, 16, 32, 64, 100, 500, 1000, 5000, 20_000])
    largest = min(smallest * by.choice([1, 2, 8, 32, 128]), 2_000_000)
    sizes = by.choice(["even", "doubling", "doubling", "falling", "falling", "few"])
    mean = {
        "even": (smallest + largest) / 2,
        "doubling": (smallest + largest) / 4,
        "falling": smallest * 3,
        "few": smallest * 7,
    }
    live = by.choice([64 << 10, 1 << 20, 8 << 20, 64 << 20])
    several = threads > 1
    return {
        "pattern": by.choice(PATTERNS),
        "threads": threads,
        "slots": max(8, min(int(live / min(mean[sizes], largest) / threads), 400_000)),
        "steps": 0,
        "smallest": smallest,
        "largest": largest,
        "sizes": sizes,
        "written": by.choice(["first", "first", "ends", "all"]),
        "zeroed": by.choice([0, 0, 0, 30, 100]),
        "resized": by.choice([0, 0, 0, 20]),
        "aligned": by.choice([0, 0, 0, 0, 10]),
        "passed": by.choice([0, 0, 10, 50]) if several else 0,
        "rounds": by.choice([1, 1, 1, 20]) if several else 1,
        "seed": by.randrange(1000),
    }


def run(program: Path, drawn: dict[str, str | int], under: Allocator, timeout: float) -> tuple[float, float, int, int]:
    """Runs the workload.  Returns seconds, processor seconds, peak KiB, and page faults."""
    command = [str(program), *map(str, drawn.values())]
    launch = Launch(command, dict(os.environ), under.added, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        done = launch.wait(timeout)
    except subprocess.TimeoutExpired:
        raise Failure(f"{under.name}: {' '.join(command)} takes more than {timeout:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launch.process.pid, signal.SIGKILL)  # the launcher and the program below it
        launch.process.wait()
    if done.exit_code != 0:
        raise Failure(f"{under.name}: {' '.join(command)} failed")
    return done.seconds, done.cpu_seconds, done.peak_rss_kib, done.minor_faults


def runs(options: argparse.Namespace, chosen: list[Allocator]):
    # A separate generator for the order: the number of allocators and repetitions must not change what is drawn.
    by, order = random.Random(options.seed), random.Random(options.seed)
    program = options.build / "bench" / "drawn" / "drawn"
    system = next(each for each in chosen if each.name == SYSTEM)
    for _ in range(options.count):
        drawn = draw(by)
        drawn["steps"] = max(LEAST_STEPS, 3 * drawn["slots"])
        wanted = drawn["steps"] * options.seconds / run(program, drawn, system, options.timeout)[0]
        drawn["steps"] = int(min(max(wanted, 3 * drawn["slots"]), MOST_STEPS))
        taken = {each.name: [] for each in chosen}
        for _ in range(options.repetitions):
            for each in order.sample(chosen, len(chosen)):
                taken[each.name].append(run(program, drawn, each, options.timeout))
        yield {"drawn": drawn, "runs": taken}


def mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def report(lines: list[dict]) -> None:
    names = list(lines[0]["runs"])
    of = [
        {name: [statistics.median(column) for column in zip(*each["runs"][name])] for name in names} for each in lines
    ]
    print(f"{len(lines)} workloads; geometric means of medians over the system's malloc\n")
    print("| allocator | time | peak |\n|---|---|---|")
    for name in names:
        print(f"| {name} |", *(f"{mean([m[name][at] / m[SYSTEM][at] for m in of]):.3f} |" for at in MEASURES.values()))
    for measure, at in MEASURES.items():
        others = [name for name in names if name != HAKMEM]
        best = [min(others, key=lambda name, m=m: m[name][at]) for m in of]
        behind = [m[HAKMEM][at] / m[name][at] for m, name in zip(of, best)]
        print(f"\n{measure}: more than 3 % behind the best of the others on {sum(ratio > 1.03 for ratio in behind)}; most on\n")
        for index in sorted(range(len(of)), key=lambda index: -behind[index])[:WORST]:
            print(f"    {behind[index]:.2f} {best[index]}: {' '.join(map(str, lines[index]['drawn'].values()))}")


def ended(_number: int, _frame: object) -> None:
    sys.exit(143)  # an exception, so that the current run is ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--library", type=Path, help="the hakmem to run; libhakmem.so in --build")
    parser.add_argument("--allocators", default="", help="these alone, separated by commas, and the system's")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.12)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, ended)
    if options.read:
        report([json.loads(line) for line in options.read.read_text().splitlines()])
        return 0
    names = [name for name in options.allocators.split(",") if name]
    if options.check:
        options.count, options.seconds, options.repetitions, names = 3, 0.02, 1, [HAKMEM]
    known = allocators.known(options.build, options.library or options.build / "libhakmem.so", names)
    chosen = allocators.choose(known, [SYSTEM, *names] if names else [])
    if options.output and options.output.exists():
        raise Failure(f"{options.output} holds a draw already: choose another --output")
    lines = []
    for line in runs(options, chosen):
        lines.append(line)
        if options.output:
            with options.output.open("a") as file:
                print(json.dumps(line), file=file)
    report(lines)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"drawn: {failure}")

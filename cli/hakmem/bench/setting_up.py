"""Installs what a run needs, and no more: the packages of its workloads, and the peers among its allocators.

Before that it takes a first look: hakmem and the system's malloc need nothing, and show within minutes that everything works here, and
what the benchmark is about. These runs are not part of the results, for which every allocator runs each workload.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hakmem.bench import allocators, workloads
from hakmem.bench.allocators import BASELINE, Allocator
from hakmem.bench.plan import Choices, Places, Plan
from hakmem.bench.runner import Runner, RunFailed
from hakmem.bench.workloads import SYNTHETIC, Workload
from hakmem.errors import Failure
from hakmem.runs import HAKMEM, SYSTEM

SET_UP = Path("tools/setup")
MAKE_PEERS = Path("bench/peers/make_peers.py")
TOOLS = "bench-tools"  # the group of packages needed to measure
_FEW = 3  # workloads of the first look


def chosen(choices: Choices, root: Path) -> list[Workload]:
    listed = workloads.load(root / workloads.FILE)
    return workloads.choose(listed, choices.workloads, choices.threads, choices.without)[0]


def packages(asked: Iterable[Workload]) -> list[str]:
    """The groups of packages, by their names in tools/setup. Synthetic workloads and those with figures need none: they are built here."""
    own = (SYNTHETIC, workloads.APART)
    return [TOOLS, *sorted({workload.packages for workload in asked if workload.group not in own})]


def peers(choices: Choices) -> list[str] | None:
    """The names of the peers; None for all."""
    if choices.baseline:
        return []
    if not choices.allocators:
        return None
    return [name for name in choices.allocators if name not in (SYSTEM, HAKMEM, BASELINE)]


def first_look(choices: Choices, places: Places, asked: list[Workload]) -> None:
    """Runs a few workloads once under both allocators, and prints a line for each workload."""
    asked = [workload for workload in asked if workload.group == SYNTHETIC][:_FEW]
    if not asked or choices.baseline:
        return
    both = [allocators.system(), allocators.hakmem(HAKMEM, Path(choices.library), "this tree")]
    print("hakmem: a first look, one run each, not part of the results:", file=sys.stderr)
    with tempfile.TemporaryDirectory() as output:
        runner = Runner(Plan(choices, replace(places, output=Path(output)), asked, both, []))
        with runner.heeding_signals():
            for workload in asked:
                print(f"hakmem: {workload.name}: {_first_runs(runner, workload, both)}", file=sys.stderr, flush=True)


def _first_runs(runner: Runner, workload: Workload, both: list[Allocator]) -> str:
    try:
        runner.prepare(workload)
        system, hakmem = (runner.measure(workload, allocator) for allocator in both)
    except RunFailed as failed:
        return str(failed)
    times = f"{hakmem['seconds']:.3f} s, with the system's malloc {system['seconds']:.3f} s"
    return f"{times}; {hakmem['peak_rss_kib'] / 1024:.1f} MiB against {system['peak_rss_kib'] / 1024:.1f} MiB"


def _do(command: list[str], root: Path) -> bool:
    return subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno()).returncode == 0


def bring(choices: Choices, places: Places, asked: list[Workload]) -> None:
    if not _do([str(SET_UP), *packages(asked)], places.root):
        raise Failure("the workloads' packages are missing; --workloads chooses others")
    wanted = peers(choices)
    if wanted == []:
        return
    make = [sys.executable, str(MAKE_PEERS), "--directory", str(places.build / "peers"), "--set-up"]
    make += ["--only", ",".join(wanted)] if wanted else []
    if not _do(make, places.root) and wanted:
        raise Failure(f"not all of these peers are available: {', '.join(wanted)}")

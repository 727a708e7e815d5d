"""Who runs what, and when: fixed before the first run, and the same when a stopped benchmark goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hakmem import __version__
from hakmem.bench import allocators, facts, workloads
from hakmem.bench.allocators import Allocator
from hakmem.bench.workloads import Workload
from hakmem.runs import HAKMEM, SYSTEM

FORMAT = 1


@dataclass(frozen=True)
class Choices:
    """What the user asked for."""

    workloads: list[str]
    allocators: list[str]
    threads: list[int]
    repetitions: int
    brief: bool
    timeout: float
    seed: int
    library: str
    baseline: str | None
    without: list[str]

    @property
    def size(self) -> str:
        return "brief" if self.brief else "full"


@dataclass(frozen=True)
class Places:
    """The directories that a benchmark knows."""

    root: Path
    build: Path
    output: Path

    @property
    def results(self) -> Path:
        """The default place of results, each in a directory of its own."""
        return self.build / "bench" / "results"

    def values(self, size: str) -> dict[str, str]:
        """The values of the names in a workload's commands, except its port."""
        return {
            "workloads": str(self.build / "bench" / "workloads"),
            "programs": str(self.root / "bench" / "programs"),
            "data": str(self.build / "bench" / "data" / size),
            "scratch": str(self.output / "scratch"),
        }


@dataclass(frozen=True)
class Step:
    kind: str  # "run", or one that is not timed: "memory" watches memory over time, "calls" counts system calls
    workload: Workload
    allocator: Allocator
    repetition: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        return (self.kind, self.workload.name, self.allocator.name, self.repetition)


@dataclass(frozen=True)
class Plan:
    choices: Choices
    places: Places
    workloads: list[Workload]
    allocators: list[Allocator]
    left_out: list[Workload]

    def steps(self, with_calls: bool) -> Iterator[Step]:
        """In each repetition, every workload under every allocator, in a newly shuffled order; then the runs that are not timed."""
        for repetition in range(self.choices.repetitions):
            for workload in self.workloads:
                shuffled = list(self.allocators)
                random.Random(f"{self.choices.seed} {repetition} {workload.name}").shuffle(shuffled)
                for allocator in shuffled:
                    yield Step("run", workload, allocator, repetition)
        for kind in ("memory", "calls") if with_calls else ("memory",):
            for workload in self.workloads:
                for allocator in self.allocators if not workload.figures else ():
                    yield Step(kind, workload, allocator, 0)

    def as_json(self) -> dict:
        values = self.places.values(self.choices.size)

        def described(workload: Workload) -> dict:
            entry = asdict(workload)
            command = workload.version and workloads.expand(workload.version, values)
            return entry | {"version": facts.first_line(command) if command else ""}

        return {
            "format": FORMAT,
            "choices": asdict(self.choices),
            "size": self.choices.size,
            "machine": facts.machine(),
            "hakmem": {"version": __version__, "commit": facts.commit(self.places.root)},
            "reference": self.reference,
            "allocators": [asdict(allocator) for allocator in self.allocators],
            "workloads": [described(workload) for workload in self.workloads],
            "left_out": [workload.name for workload in self.left_out],
        }

    @property
    def reference(self) -> str:
        """The allocator that ratios refer to: the system's malloc if it runs, the baseline in a comparison of two builds."""
        names = [allocator.name for allocator in self.allocators]
        if SYSTEM in names:
            return SYSTEM
        return next((name for name in names if name != HAKMEM), HAKMEM)


def make(choices: Choices, places: Places) -> Plan:
    library = Path(choices.library)
    if choices.baseline:
        there = allocators.two_builds(library, Path(choices.baseline))
    else:
        there = allocators.known(places.build, library, choices.allocators)
    listed = workloads.load(places.root / workloads.FILE)
    chosen, left_out = workloads.choose(listed, choices.workloads, choices.threads, choices.without)
    return Plan(choices, places, chosen, allocators.choose(there, choices.allocators), left_out)

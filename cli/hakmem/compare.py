"""Runs one command alternately under the system malloc, hakmem, and others if wanted, and records the cost of each run."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hakmem import preload, ranks
from hakmem.bench.allocators import Allocator
from hakmem.forwarding import Forwarding
from hakmem.runs import HAKMEM, MEASURES, SYSTEM, Launch, Measure, Run, Spread

ALLOCATORS = (SYSTEM, HAKMEM)
FEWEST = 3  # runs under each allocator, for a spread
TO_TELL = 5  # runs under each: with fewer, the smallest chance there can be is above LEVEL
LEVEL = 0.02  # the chance that a difference is reported where there is none

_TAIL_BYTES = 4000
_OF_MEDIAN = math.sqrt(math.pi / 2)  # the standard error of a median, in those of a mean


@dataclass
class Comparison:
    """All runs of one command, by allocator, in the order they ran.

    The last of the allocators is hakmem, with which the others are compared.
    """

    command: list[str]
    repetitions: int
    allocators: tuple[str, ...] = ALLOCATORS
    runs: dict[str, list[Run]] = field(init=False)
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.runs = {name: [] for name in self.allocators}

    @property
    def subject(self) -> str:
        return self.allocators[-1]

    @property
    def others(self) -> tuple[str, ...]:
        return self.allocators[:-1]

    def spread(self, allocator: str, measure: Measure) -> Spread:
        return Spread.over(measure.of(run) for run in self.runs[allocator])

    def ratio(self, measure: Measure, other: str = SYSTEM) -> float | None:
        """hakmem's median divided by the other's; None if that is zero."""
        median = self.spread(other, measure).median
        return self.spread(self.subject, measure).median / median if median else None

    @property
    def enough(self) -> bool:
        """True if there are enough runs to tell a difference from noise."""
        return all(len(runs) >= TO_TELL for runs in self.runs.values())

    def alike(self, measure: Measure, other: str) -> bool:
        """True if the difference between hakmem and the other may be noise."""
        ratio = self.ratio(measure, other)
        if not self.enough or (ratio and abs(1 - ratio) < ratio * self.error(measure, other)):
            return True
        return ranks.chance(*self._values(measure, other)) > LEVEL

    def error(self, measure: Measure, other: str) -> float:
        """The standard error of the ratio of the two medians, as a fraction of the ratio."""
        return math.hypot(
            *(
                _OF_MEDIAN * statistics.stdev(values) / math.sqrt(len(values)) / statistics.median(values)
                for values in self._values(measure, other)
            )
        )

    def _values(self, measure: Measure, other: str) -> Iterator[list[float]]:
        """hakmem's, and the other's."""
        return ([measure.of(run) for run in self.runs[name]] for name in (self.subject, other))

    @property
    def same_outcome(self) -> bool:
        """True if every run ended in the same way."""
        return len({run.outcome for runs in self.runs.values() for run in runs}) == 1

    @property
    def complete(self) -> bool:
        return all(len(runs) == self.repetitions for runs in self.runs.values())

    @property
    def measured(self) -> bool:
        return all(self.runs.values())

    @property
    def judged(self) -> bool:
        """True if there is a verdict: enough runs, which did the same work."""
        return self.same_outcome and all(len(runs) >= FEWEST for runs in self.runs.values())

    def as_json(self) -> dict:
        return {
            "command": self.command,
            "repetitions": self.repetitions,
            "complete": self.complete,
            "runs": {
                name: [
                    {measure.key: measure.of(run) for measure in MEASURES}
                    | {"user_seconds": run.user_seconds, "system_seconds": run.system_seconds}
                    | {"exit": run.exit_code, "signal": run.signal}
                    for run in runs
                ]
                for name, runs in self.runs.items()
            },
            "median": {
                name: {measure.key: self.spread(name, measure).median for measure in MEASURES}
                for name in self.allocators
                if self.runs[name]
            },
            "ratio": self._ratios(SYSTEM),
            "ratios": {other: self._ratios(other) for other in self.others},
        }

    def _ratios(self, other: str) -> dict[str, float | None]:
        if not (self.measured and self.same_outcome):
            return {}
        return {measure.key: self.ratio(measure, other) for measure in MEASURES}


def order(repetitions: int, allocators: Sequence = ALLOCATORS) -> Iterator:
    """The order of runs: the allocators alternate, and each goes first equally often, so that drift affects all alike."""
    for repetition in range(repetitions):
        first = repetition % len(allocators)
        yield from (*allocators[first:], *allocators[:first])


class _Streams:
    """Standard input, output and error of the runs.

    A file on standard input is read by every run from the same place; anything else
    can be read only once, so the runs get an empty input instead.
    """

    def __init__(self, show_output: bool, stack: contextlib.ExitStack) -> None:
        self._start: int | None = None
        self.input: int = subprocess.DEVNULL
        with contextlib.suppress(OSError):
            self._start = os.lseek(0, 0, os.SEEK_CUR)
            self.input = 0
        self.output = None if show_output else subprocess.DEVNULL
        self.errors = None if show_output else stack.enter_context(tempfile.TemporaryFile())

    def rewind(self) -> None:
        if self._start is not None:
            os.lseek(0, self._start, os.SEEK_SET)
        if self.errors:
            self.errors.seek(0)
            self.errors.truncate()

    def error_tail(self) -> str:
        if not self.errors:
            return ""
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - _TAIL_BYTES))
        return self.errors.read().decode(errors="replace").strip()


def _added(there: str, allocator: Allocator) -> list[str]:
    """The variables for this allocator. Its library comes after what is already preloaded."""
    preloads = ":".join(filter(None, (there, allocator.library)))
    variables = ({"LD_PRELOAD": preloads} if preloads else {}) | allocator.env
    return [f"{name}={value}" for name, value in variables.items()]


def _launch(
    command: list[str], environment: dict[str, str], added: list[str], streams: _Streams, forwarding: Forwarding
) -> Run:
    streams.rewind()
    launch = Launch(command, environment, added, stdin=streams.input, stdout=streams.output, stderr=streams.errors)
    forwarding.started(launch.process)
    run = launch.wait()
    forwarding.process = None
    return replace(run, errors=streams.error_tail())


def compare(
    command: list[str],
    repetitions: int,
    allocators: Sequence[Allocator],
    *,
    variables: dict[str, str] | None = None,
    show_output: bool = False,
    before_run: Callable[[str], None] = lambda allocator: None,
) -> Comparison:
    """Run `command` under each allocator `repetitions` times; stops early when a run dies of a signal or the user asks.

    `variables` are added to the environment of every run; `before_run` is called with the name of the next allocator.
    """
    environment = preload.caller_environment() | (variables or {})
    there = preload.without_preload(environment)
    environment.pop("LD_PRELOAD", None)
    result = Comparison(command, repetitions, tuple(allocator.name for allocator in allocators))
    with contextlib.ExitStack() as stack:
        streams = _Streams(show_output, stack)
        forwarding = stack.enter_context(Forwarding())
        for allocator in order(repetitions, allocators):
            before_run(allocator.name)
            run = _launch(command, environment, _added(there, allocator), streams, forwarding)
            result.runs[allocator.name].append(run)
            result.interrupted = forwarding.received
            if run.signal is not None or forwarding.received:
                break
    return result

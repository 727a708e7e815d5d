"""Runs one command under the system malloc and under hakmem, in turn, and keeps what each run cost."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from hakmem import preload
from hakmem.forwarding import Forwarding
from hakmem.runs import HAKMEM, MEASURES, SYSTEM, Launch, Measure, Run, Spread

ALLOCATORS = (SYSTEM, HAKMEM)

_TAIL_BYTES = 4000


@dataclass
class Comparison:
    """All runs of one command, by allocator, in the order they ran."""

    command: list[str]
    repetitions: int
    runs: dict[str, list[Run]] = field(default_factory=lambda: {name: [] for name in ALLOCATORS})
    interrupted: bool = False

    def spread(self, allocator: str, measure: Measure) -> Spread:
        return Spread.over(measure.of(run) for run in self.runs[allocator])

    def ratio(self, measure: Measure) -> float | None:
        """hakmem's median over the system's; None where the system's is zero."""
        system = self.spread(SYSTEM, measure).median
        return self.spread(HAKMEM, measure).median / system if system else None

    @property
    def same_outcome(self) -> bool:
        """True where every run ended in the same way."""
        return len({run.outcome for runs in self.runs.values() for run in runs}) == 1

    @property
    def complete(self) -> bool:
        return all(len(runs) == self.repetitions for runs in self.runs.values())

    @property
    def measured(self) -> bool:
        return all(self.runs.values())

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
                for name in ALLOCATORS
                if self.runs[name]
            },
            "ratio": {measure.key: self.ratio(measure) for measure in MEASURES}
            if self.measured and self.same_outcome
            else {},
        }


def order(repetitions: int) -> Iterator[str]:
    """Who runs when: in turn, and each first as often as the other, so that drift hits both alike."""
    for repetition in range(repetitions):
        yield from ALLOCATORS if repetition % 2 == 0 else reversed(ALLOCATORS)


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


def _environments(environment: dict[str, str], library: Path) -> dict[str, str]:
    """The value of LD_PRELOAD under each allocator."""
    return {
        SYSTEM: preload.without_preload(environment),
        HAKMEM: preload.preload_value({"LD_PRELOAD": preload.without_preload(environment)}, library),
    }


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
    library: Path,
    *,
    variables: dict[str, str] | None = None,
    show_output: bool = False,
    before_run: Callable[[str], None] = lambda allocator: None,
) -> Comparison:
    """Run `command` 2 * `repetitions` times; stops early when a run dies of a signal or the user asks.

    `variables` are added to the environment of every run; `before_run` is told whose turn it is.
    """
    environment = preload.caller_environment() | (variables or {})
    preloads = _environments(environment, library)
    environment.pop("LD_PRELOAD", None)
    result = Comparison(command, repetitions)
    with contextlib.ExitStack() as stack:
        streams = _Streams(show_output, stack)
        forwarding = stack.enter_context(Forwarding())
        for allocator in order(repetitions):
            before_run(allocator)
            added = [f"LD_PRELOAD={preloads[allocator]}"] if preloads[allocator] else []
            run = _launch(command, environment, added, streams, forwarding)
            result.runs[allocator].append(run)
            result.interrupted = forwarding.received
            if run.signal is not None or forwarding.received:
                break
    return result

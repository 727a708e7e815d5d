"""Runs one command under the system malloc and under hakmem, in turn, and keeps what each run cost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hakmem import preload
from hakmem.errors import NOT_EXECUTABLE, NOT_FOUND, Failure

SYSTEM = "system"
HAKMEM = "hakmem"
ALLOCATORS = (SYSTEM, HAKMEM)

_TAIL_BYTES = 4000


@dataclass(frozen=True)
class Run:
    """What one run cost, as the kernel counts it for the command and the children it waited for."""

    seconds: float
    user_seconds: float
    system_seconds: float
    peak_rss_kib: int
    minor_faults: int
    major_faults: int
    exit_code: int | None
    signal: int | None
    errors: str = ""

    @property
    def cpu_seconds(self) -> float:
        return self.user_seconds + self.system_seconds

    @property
    def outcome(self) -> str:
        if self.signal is not None:
            return f"died of {signal.Signals(self.signal).name}"
        return f"exit {self.exit_code}"


@dataclass(frozen=True)
class Measure:
    """A figure of a run that is worth comparing."""

    key: str
    title: str
    unit: str  # "s", "KiB" or "" for a count
    of: Callable[[Run], float]


MEASURES = (
    Measure("seconds", "time", "s", lambda run: run.seconds),
    Measure("cpu_seconds", "CPU, user + system", "s", lambda run: run.cpu_seconds),
    Measure("peak_rss_kib", "peak resident set", "KiB", lambda run: run.peak_rss_kib),
    Measure("minor_faults", "minor page faults", "", lambda run: run.minor_faults),
    Measure("major_faults", "major page faults", "", lambda run: run.major_faults),
)


@dataclass(frozen=True)
class Spread:
    """The middle and the ends of one measure over the repetitions."""

    median: float
    least: float
    most: float

    def overlaps(self, other: Spread) -> bool:
        return self.least <= other.most and other.least <= self.most


@dataclass
class Comparison:
    """All runs of one command, by allocator, in the order they ran."""

    command: list[str]
    repetitions: int
    runs: dict[str, list[Run]] = field(default_factory=lambda: {name: [] for name in ALLOCATORS})
    interrupted: bool = False

    def spread(self, allocator: str, measure: Measure) -> Spread:
        values = [measure.of(run) for run in self.runs[allocator]]
        return Spread(statistics.median(values), min(values), max(values))

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


def _in_foreground() -> bool:
    """True where the terminal sends its signals to the command too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class _Forwarding:
    """While in force, the signals sent to this process go on to the command under way."""

    SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)

    def __init__(self) -> None:
        self.received = False
        self.process: subprocess.Popen | None = None
        self._early: list[int] = []  # came while a command was being started
        self._old: dict[int, object] = {}

    def __enter__(self) -> _Forwarding:
        for number in self.SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def started(self, process: subprocess.Popen) -> None:
        self.process = process
        while self._early:
            process.send_signal(self._early.pop(0))

    def _handle(self, number: int, _frame: object) -> None:
        self.received = True
        if number in self.FROM_TERMINAL and _in_foreground():
            return
        if self.process:
            self.process.send_signal(number)
        else:
            self._early.append(number)


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
    command: list[str], environment: dict[str, str], variables: list[str], streams: _Streams, forwarding: _Forwarding
) -> Run:
    with tempfile.TemporaryFile() as report:
        streams.rewind()
        process = subprocess.Popen(
            [str(preload.PACKAGE / "hakmem_launch"), str(report.fileno()), *variables, "--", *command],
            stdin=streams.input,
            stdout=streams.output,
            stderr=streams.errors,
            pass_fds=[report.fileno()],
            env=environment,
        )
        forwarding.started(process)
        process.wait()
        forwarding.process = None
        report.seek(0)
        line = report.read()
    if not line:
        raise Failure(f"{command[0]}: the launcher ended without a report")
    cost = json.loads(line)
    if "error" in cost:
        missing = cost["error"] == 2
        raise Failure(f"{command[0]}: {os.strerror(cost['error'])}", NOT_FOUND if missing else NOT_EXECUTABLE)
    return Run(
        seconds=cost["wall_ns"] / 1e9,
        user_seconds=cost["user_us"] / 1e6,
        system_seconds=cost["system_us"] / 1e6,
        peak_rss_kib=cost["peak_rss_kib"],
        minor_faults=cost["minor_faults"],
        major_faults=cost["major_faults"],
        exit_code=cost.get("exit"),
        signal=cost.get("signal"),
        errors=streams.error_tail(),
    )


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
        forwarding = stack.enter_context(_Forwarding())
        for allocator in order(repetitions):
            before_run(allocator)
            added = [f"LD_PRELOAD={preloads[allocator]}"] if preloads[allocator] else []
            run = _launch(command, environment, added, streams, forwarding)
            result.runs[allocator].append(run)
            result.interrupted = forwarding.received
            if run.signal is not None or forwarding.received:
                break
    return result

"""One run of a command, and its cost, measured through the launcher."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hakmem import preload, signals
from hakmem.errors import NOT_EXECUTABLE, NOT_FOUND, Failure

SYSTEM = "system"
HAKMEM = "hakmem"


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
            return f"died of {signals.name_of(self.signal)}"
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
    """The median and the range of one measure over the repetitions."""

    median: float
    least: float
    most: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Spread:
        values = list(values)
        return cls(statistics.median(values), min(values), max(values))

    def overlaps(self, other: Spread) -> bool:
        return self.least <= other.most and other.least <= self.most


class Launch:
    """A command that runs below the launcher.

    `added` are variables, NAME=VALUE, for the command only; `options` go to Popen.
    """

    def __init__(self, command: list[str], environment: dict[str, str], added: list[str], **options) -> None:
        self._name = command[0]
        self._report = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [str(preload.PACKAGE / "hakmem_launch"), str(self._report.fileno()), *added, "--", *command],
            pass_fds=[self._report.fileno()],
            env=environment,
            **options,
        )

    def wait(self, timeout: float | None = None) -> Run:
        """Waits for the end, and returns what the command cost; raises subprocess.TimeoutExpired if that takes longer."""
        self.process.wait(timeout)
        with self._report:
            self._report.seek(0)
            line = self._report.read()
        if not line:
            raise Failure(f"{self._name}: the launcher ended without a report")
        cost = json.loads(line)
        if "error" in cost:
            missing = cost["error"] == 2
            raise Failure(f"{self._name}: {os.strerror(cost['error'])}", NOT_FOUND if missing else NOT_EXECUTABLE)
        return Run(
            seconds=cost["wall_ns"] / 1e9,
            user_seconds=cost["user_us"] / 1e6,
            system_seconds=cost["system_us"] / 1e6,
            peak_rss_kib=cost["peak_rss_kib"],
            minor_faults=cost["minor_faults"],
            major_faults=cost["major_faults"],
            exit_code=cost.get("exit"),
            signal=cost.get("signal"),
        )

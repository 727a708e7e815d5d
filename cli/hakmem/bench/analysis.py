"""Medians, ratios, geometric means, intervals, outliers, and losses, from results.json.

A workload on which any of the allocators failed is left out of every geometric mean, so that all
means are over the same work; the report names those workloads. Every other figure stays.

A workload that prints its own figures is judged by these: no mean and no list of losses includes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy
from scipy import stats

from hakmem.bench.allocators import BASELINE
from hakmem.bench.figures import Figure
from hakmem.bench.workloads import Server, Workload
from hakmem.runs import HAKMEM, MEASURES, Spread

TIME = "seconds"
MEMORY = "peak_rss_kib"
MEAN_MEMORY = "mean_rss_kib"
END_MEMORY = "end_rss_kib"
CALLS = "system_calls"
RATE = "rate"  # operations a second, where the workload counts them; more is better

# (key, title, title of a narrow column)
OVER_TIME = ((MEAN_MEMORY, "mean resident set", "mean RSS"), (END_MEMORY, "resident set at the end", "RSS at the end"))

# (key, title, unit)
FIGURES = (
    *((measure.key, measure.title, measure.unit) for measure in MEASURES),
    *((key, title, "KiB") for key, title, _ in OVER_TIME),
    (CALLS, "system calls", ""),
)

# A smaller difference is noise on most machines.
NOTABLE = 1.03

# With fewer runs an interval says no more than their range, and no run counts as an outlier.
FEWEST = 5
CONFIDENCE = 0.95
# Iglewicz and Hoaglin's bound for outliers, in standard deviations as estimated from the median deviation.
FAR = 3.5


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """None if there are no values, or one is missing or zero."""
    values = list(values)
    if not values or not all(values):
        return None
    return float(stats.gmean(values))


def _quotient_of_medians(mine: numpy.ndarray, other: numpy.ndarray, axis: int) -> numpy.ndarray:
    return numpy.median(mine, axis=axis) / numpy.median(other, axis=axis)


@dataclass(frozen=True)
class Loss:
    """A workload on which another allocator is better than hakmem."""

    workload: str
    peer: str
    ratio: float
    overlaps: bool
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Standing:
    """How often hakmem is ahead of the best peer, level with it, and behind it."""

    ahead: int
    level: int
    behind: int
    missing: int  # hakmem has no figure, or no peer has one


@dataclass(frozen=True)
class Outlier:
    """A run with a time far from that of the other repetitions."""

    workload: str
    allocator: str
    repetition: int
    seconds: float
    median: float


def own_key(figure: str) -> str:
    """The key of a figure that a workload printed itself."""
    return f"own {figure}"


class Results:
    def __init__(self, stored: dict) -> None:
        self.stored = stored
        self.reference: str = stored["reference"]
        self.allocators: list[str] = [entry["name"] for entry in stored["allocators"]]
        self.workloads = [
            Workload(**entry | {"server": Server(**entry["server"]) if entry["server"] else None})
            for entry in stored["workloads"]
        ]
        self.plain = [workload for workload in self.workloads if not workload.figures]
        self._figures: dict[str, dict[str, Figure]] = defaultdict(dict)
        self._values: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
        self._reasons: dict[tuple[str, str], Counter] = defaultdict(Counter)
        self._courses: dict[tuple[str, str], list[list[float]]] = {}
        for entry in stored["runs"]:
            self._take(entry)

    def _take(self, entry: dict) -> None:
        pair = (entry["workload"], entry["allocator"])
        if entry["failure"]:
            if entry["kind"] != "calls":  # strace may not be permitted, and slows runs that have a time limit
                self._reasons[pair][entry["failure"]] += 1
            return
        for key, _, _ in FIGURES:
            if key in entry:
                self._values[(*pair, key)][entry["repetition"]] = entry[key]
        if "operations" in entry:
            self._values[(*pair, RATE)][entry["repetition"]] = entry["operations"] / entry[TIME]
        if "course" in entry:
            self._courses[pair] = entry["course"]
        for figure in (Figure(**stored) for stored in entry.get("figures", ())):
            self._figures[entry["workload"]].setdefault(figure.name, figure)
            self._values[(*pair, own_key(figure.name))][entry["repetition"]] = figure.value

    @property
    def compares_builds(self) -> bool:
        return BASELINE in self.allocators

    # ---- One workload under one allocator ----

    def failure(self, workload: str, allocator: str) -> str | None:
        """Why the allocator has no figures for the workload; one failed run is enough."""
        reasons = self._reasons.get((workload, allocator))
        if reasons:
            return " / ".join(reasons)
        return None if self._values.get((workload, allocator, TIME)) else "not run"

    def spread(self, workload: str, allocator: str, key: str) -> Spread | None:
        values = self._values.get((workload, allocator, key))
        return Spread.over(values.values()) if values and not self.failure(workload, allocator) else None

    def values(self, workload: str, allocator: str, key: str) -> list[float]:
        """The values of the repetitions; none if the allocator has failed."""
        values = self._values.get((workload, allocator, key), {})
        return [] if self.failure(workload, allocator) else [values[number] for number in sorted(values)]

    def course(self, workload: str, allocator: str) -> list[list[float]]:
        """The resident set while the command ran: seconds and KiB."""
        return self._courses.get((workload, allocator), [])

    def ratio(self, workload: str, allocator: str, key: str, to: str | None = None) -> float | None:
        """The quotient of the medians; None if one is missing, or the divisor is zero."""
        mine, other = self.spread(workload, allocator, key), self.spread(workload, to or self.reference, key)
        return mine.median / other.median if mine and other and other.median else None

    def interval(self, workload: str, allocator: str, key: str, to: str) -> tuple[float, float] | None:
        """The 95 % bootstrap interval of the ratio; None if there are too few runs."""
        pair = [list(self._values.get((workload, name, key), {}).values()) for name in (allocator, to)]
        if min(map(len, pair)) < FEWEST or not all(pair[1]):
            return None
        found = stats.bootstrap(
            pair,
            _quotient_of_medians,
            confidence_level=CONFIDENCE,
            method="percentile",
            random_state=numpy.random.default_rng(0),
        ).confidence_interval
        return float(found.low), float(found.high)

    def figures(self, workload: str) -> list[Figure]:
        """The figures that the workload printed; their values are those of one run."""
        return list(self._figures[workload].values())

    def best(self, workload: str, key: str, among: Iterable[str]) -> str | None:
        """The allocator with the least median."""
        medians = {name: spread.median for name in among if (spread := self.spread(workload, name, key))}
        return min(medians, key=medians.__getitem__) if medians else None

    def best_peer(self, workload: str, key: str) -> str | None:
        return self.best(workload, key, (name for name in self.allocators if name != HAKMEM))

    # ---- Over workloads ----

    def groups(self) -> list[str]:
        return sorted({workload.group for workload in self.plain})

    def common(self, group: str | None = None, key: str = TIME) -> list[str]:
        """The plain workloads that every allocator finished with a value for the measure."""
        return [
            workload.name
            for workload in self.plain
            if group in (None, workload.group)
            and all(self.spread(workload.name, allocator, key) for allocator in self.allocators)
        ]

    def over_time(self) -> list[tuple[str, str, str]]:
        """The entries of OVER_TIME that were measured."""
        return [entry for entry in OVER_TIME if self.common(key=entry[0])]

    def mean(self, allocator: str, key: str, group: str | None = None) -> float | None:
        """The geometric mean of the ratios to the reference."""
        return geometric_mean(self.ratio(name, allocator, key) for name in self.common(group, key))

    def mean_of_best_peers(self, key: str, group: str | None = None) -> float | None:
        """The same for an imaginary allocator that is as good as the best peer on each workload."""
        return geometric_mean(self.ratio(name, self.best_peer(name, key), key) for name in self.common(group, key))

    def failures(self) -> list[tuple[str, str, str]]:
        return [
            (workload.name, allocator, reason)
            for workload in self.workloads
            for allocator in self.allocators
            if (reason := self.failure(workload.name, allocator))
        ]

    def outliers(self) -> list[Outlier]:
        """The outliers of the plain workloads; they stay in every figure, since they hardly move medians."""
        found = []
        for workload in self.plain:
            for allocator in self.allocators:
                times = self._values.get((workload.name, allocator, TIME), {})
                if len(times) < FEWEST:
                    continue
                seconds = numpy.array(list(times.values()))
                median = float(numpy.median(seconds))
                far = abs(seconds - median) > FAR * stats.median_abs_deviation(seconds, scale="normal")
                notable = abs(seconds - median) > (NOTABLE - 1) * median
                found += [
                    Outlier(workload.name, allocator, number, float(value), median)
                    for number, value, stands_out in zip(times, seconds, far & notable)
                    if stands_out
                ]
        return found

    def losses(self, key: str) -> list[Loss]:
        """Where hakmem is notably behind the best peer, the worst first."""
        found = []
        for workload in self.plain:
            name = workload.name
            peer = self.best_peer(name, key)
            ratio = peer and self.ratio(name, HAKMEM, key, to=peer)
            if ratio and ratio > NOTABLE:
                overlaps = self.spread(name, HAKMEM, key).overlaps(self.spread(name, peer, key))
                found.append(Loss(name, peer, ratio, overlaps, self.interval(name, HAKMEM, key, to=peer)))
        return sorted(found, key=lambda loss: -loss.ratio)

    def standing(self, key: str, group: str | None = None) -> Standing:
        """Counts the plain workloads; a ratio within NOTABLE is level."""
        ratios = [
            (peer := self.best_peer(workload.name, key)) and self.ratio(workload.name, HAKMEM, key, to=peer)
            for workload in self.plain
            if group in (None, workload.group)
        ]
        there = [ratio for ratio in ratios if ratio is not None]
        ahead, behind = sum(ratio < 1 / NOTABLE for ratio in there), sum(ratio > NOTABLE for ratio in there)
        return Standing(ahead, len(there) - ahead - behind, behind, len(ratios) - len(there))

    # ---- Two builds: ratios within each repetition, in which the machine's drift affects both alike ----

    def paired_ratios(self, workload: str, key: str) -> dict[int, float]:
        if self.failure(workload, HAKMEM) or self.failure(workload, BASELINE):
            return {}
        mine, other = (self._values.get((workload, name, key), {}) for name in (HAKMEM, BASELINE))
        return {number: mine[number] / other[number] for number in sorted(mine.keys() & other.keys()) if other[number]}

    def paired(self, workload: str, key: str) -> Spread | None:
        ratios = self.paired_ratios(workload, key)
        return Spread.over(ratios.values()) if ratios else None

    def paired_mean(self, key: str, group: str | None = None) -> Spread | None:
        """The spread over the repetitions of each repetition's geometric mean."""
        ratios = [self.paired_ratios(name, key) for name in self.common(group)]
        if not ratios or not all(ratios):
            return None
        repetitions = set.intersection(*(set(entry) for entry in ratios))
        return Spread.over(geometric_mean(entry[number] for entry in ratios) for number in repetitions)

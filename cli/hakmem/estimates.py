"""Who holds the live bytes: estimates from a snapshot's samples, scaled to what the allocator counted.

A sampled block of s bytes with the chance p stands for s / p bytes. Within a size class these estimates are scaled to sum to the
class's live bytes, which are known. So a line is T * Y / (Y + Z), where T is the class's live bytes, Y what the line's samples stand for,
and Z what the others stand for. To first order, with r = Y / (Y + Z) and V the sum of s² (1 - p) / p² over samples, its variance is

    (T / (Y + Z))² * ((1 - r)² * V(Y) + r² * V(Z))

Others without a sample may still hold some of the class. If a line has all of its samples, or they are few, others count as if they had
half a sample, so that only blocks that are always sampled have no variance. Classes are sampled independently, so their variances add.

A class that should have only a few samples is not scaled alone: by chance they may all be one line's, which would then seem to have the
whole class for certain. Such classes are counted together: every byte of them was sampled with the same chance, whatever its block's size.
Which classes these are depends on their bytes, not on their samples, so that it adds no bias.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from hakmem.snapshots import Sample, Snapshot

NOT_SAMPLED = "(not sampled)"
UNKNOWN = "(unknown)"

_GRAIN = 1 << 16  # weights are whole numbers of 1 / _GRAIN, so that their sums are exact
_MOST_ASKED = (1 << 32) - 1

# A comparison does not scale a class with fewer samples: a single one would stand for the whole class. A profile takes classes that
# should have fewer together.
_SCALED_FROM = 10


@dataclass
class Line:
    """The memory held under one key: a site, a tag, or a function."""

    key: Hashable
    bytes: int = 0
    objects: int = 0
    asked: int = 0
    samples: int = 0
    uncertain: int = 0  # samples that were not certain
    stood_for: float = 0.0  # the bytes that these stand for; 0: not known
    squares: float = 0.0  # the sum of their squares, sample by sample
    variance: float = 0.0  # of the bytes
    byte_seconds: float = 0.0

    @property
    def error(self) -> float:
        """The standard error of the bytes."""
        return math.sqrt(self.variance)

    @property
    def age(self) -> float | None:
        """The mean over its bytes of the seconds since allocation."""
        return self.byte_seconds / self.bytes if self.bytes and self.samples else None


@dataclass
class Stacks:
    """Lines by stack, in a form that is comparable between processes: frames are (build id, offset in the file or None, function)."""

    file: str
    rate: float
    lines: dict[tuple, Line] = field(default_factory=dict)


@dataclass
class _Stratum:
    """Samples of blocks that were counted together."""

    samples: list[Sample]
    bytes: int
    objects: int
    block_size: int  # 0: sizes differ
    most: dict[int, int] = field(default_factory=dict)  # of each size: how many there are, if they are not scaled by size

    def count(self, sample: Sample) -> float:
        """The blocks that a sample stands for. One of a small block stands for more than there are if its class has few bytes."""
        return min(1 / sample.chance, self.most.get(sample.size, math.inf))

    def include(self, other: _Stratum) -> None:
        self.samples += other.samples
        self.bytes += other.bytes
        self.objects += other.objects
        if other.block_size:
            self.most[other.block_size] = other.objects


def _large_strata(snapshot: Snapshot, samples: list[Sample]) -> Iterable[_Stratum]:
    """Blocks that are always sampled are known exactly; only the rest is divided among samples."""
    certain = [each for each in samples if each.chance == 1]
    held = sum(each.size for each in certain)
    if held > snapshot.large_bytes or len(certain) > snapshot.large_blocks:  # some were allocated after the count
        yield _Stratum(samples, snapshot.large_bytes, snapshot.large_blocks, 0)
        return
    rest = [each for each in samples if each.chance < 1]
    yield _Stratum(certain, held, len(certain), 0)
    yield _Stratum(rest, snapshot.large_bytes - held, snapshot.large_blocks - len(certain), 0)


def _counted_apart(snapshot: Snapshot) -> Iterable[_Stratum]:
    classes = {each.block_size: each for each in snapshot.classes if each.block_size}
    of_class: dict[int, list[Sample]] = {size: [] for size in classes}
    large: list[Sample] = []
    for sample in snapshot.samples:
        (large if sample.large else of_class.get(sample.size, large)).append(sample)
    for size, each in classes.items():
        yield _Stratum(of_class[size], each.live * size, each.live, size)
    yield from _large_strata(snapshot, large)


def _is_small(stratum: _Stratum, rate: float) -> bool:
    """Whether so few bytes should have only a few samples; blocks that are always sampled are known exactly, however few."""
    certain = stratum.samples and all(each.chance == 1 for each in stratum.samples)
    return stratum.bytes < _SCALED_FROM * rate and not certain


def _strata(snapshot: Snapshot, cautious: bool) -> Iterable[_Stratum]:
    pool = _Stratum([], 0, 0, 0)
    for stratum in _counted_apart(snapshot):
        if not cautious and _is_small(stratum, snapshot.rate):
            pool.include(stratum)
        else:
            yield stratum
    yield pool


def apportion(total: int, weights: dict[Hashable, float]) -> dict[Hashable, int]:
    """Whole numbers in proportion to the weights, with the sum `total`; equal if all weights are 0. Rounds up the largest remainders."""
    parts = {key: round(weight * _GRAIN) for key, weight in weights.items()}
    if not any(parts.values()):
        parts = dict.fromkeys(parts, 1)
    whole = sum(parts.values())
    shares = {key: divmod(total * part, whole) for key, part in parts.items()}
    left = total - sum(share for share, _ in shares.values())
    for key in sorted(shares, key=lambda key: shares[key][1], reverse=True)[:left]:
        shares[key] = (shares[key][0] + 1, 0)
    return {key: share for key, (share, _) in shares.items()}


def _asked(sample: Sample) -> int:
    """The bytes requested. A record has 32 bits for them; for a larger block, the size exceeds them by less than a page."""
    return sample.size if sample.asked == _MOST_ASKED else sample.asked


class _Estimate:
    def __init__(self, key_of: Callable[[Sample], Hashable], cautious: bool) -> None:
        self.lines: dict[Hashable, Line] = {}
        self._key_of = key_of
        self._cautious = cautious

    def _line(self, key: Hashable) -> Line:
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line(key)
        return line

    def add(self, stratum: _Stratum) -> None:
        if not stratum.samples:
            if stratum.bytes and not self._cautious:
                line = self._line(NOT_SAMPLED)
                line.bytes += stratum.bytes
                line.objects += stratum.objects
                line.asked += stratum.bytes
            return
        of_key: dict[Hashable, list[Sample]] = defaultdict(list)
        for sample in stratum.samples:
            of_key[self._key_of(sample)].append(sample)
        weights = {key: sum(each.weight for each in samples) for key, samples in of_key.items()}
        counts = {key: sum(map(stratum.count, samples)) for key, samples in of_key.items()}
        variances = {key: sum(each.variance for each in samples) for key, samples in of_key.items()}
        size = stratum.block_size
        if self._cautious and any(variances.values()) and len(stratum.samples) < _SCALED_FROM:
            objects = {key: round(count) for key, count in counts.items()}
            held = {key: round(weight) for key, weight in weights.items()}
        else:
            objects = apportion(stratum.objects, counts)
            held = {key: count * size for key, count in objects.items()} if size else apportion(stratum.bytes, weights)
            variances = self._scaled(stratum, of_key, weights, variances)
        for key, samples in of_key.items():
            self._enter(self._line(key), samples, weights[key], held[key], objects[key], variances[key])

    def _scaled(
        self,
        stratum: _Stratum,
        of_key: dict[Hashable, list[Sample]],
        weights: dict[Hashable, float],
        variances: dict[Hashable, float],
    ) -> dict[Hashable, float]:
        whole, variance = sum(weights.values()), sum(variances.values())
        scaled = {}
        for key, samples in of_key.items():
            share, own = weights[key] / whole, variances[key]
            # Sites without a sample may hold some of the stratum, as much as half a sample.
            if self._cautious or len(of_key) == 1 or len(stratum.samples) < _SCALED_FROM:
                share = (len(samples) + 0.5) / (len(stratum.samples) + 1)
                own = variance * share
            ratio = stratum.bytes / whole
            scaled[key] = ratio * ratio * ((1 - share) ** 2 * own + share * share * max(0.0, variance - own))
        return scaled

    @staticmethod
    def _enter(line: Line, samples: list[Sample], weight: float, held: int, objects: int, variance: float) -> None:
        line.bytes += held
        line.objects += objects
        line.samples += len(samples)
        uncertain = [each.weight for each in samples if each.chance < 1]
        line.uncertain += len(uncertain)
        line.stood_for += sum(uncertain)
        line.squares += sum(each * each for each in uncertain)
        line.variance += variance
        line.asked += round(held * sum(min(_asked(each), each.size) / each.chance for each in samples) / weight)
        line.byte_seconds += held * sum(each.age * each.weight for each in samples) / weight


def estimate(
    snapshot: Snapshot, key_of: Callable[[Sample], Hashable] = lambda sample: sample.site, cautious: bool = False
) -> list[Line]:
    """The lines by each sample's `key_of`, the largest first. All bytes sum to the snapshot's live bytes.

    `cautious` is for comparisons: classes with few samples are not scaled, since they would then seem certain, and classes with none are
    left out, so the sum is only approximate.
    """
    estimates = _Estimate(key_of, cautious)
    for stratum in _strata(snapshot, cautious):
        estimates.add(stratum)
    return sorted(estimates.lines.values(), key=lambda line: (-line.bytes, str(line.key)))

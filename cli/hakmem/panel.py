"""The changes of sites between two snapshots of one process: which sampled blocks each site gained, and which it lost.

Every sample stands for R bytes, except blocks that are always sampled, until a thread allocates so fast that it gives samples up. Then
every second sample goes when its place is allocated again, each remaining one stands for twice as many bytes, and so on. So a site that
holds as much as before may lose a hundred samples and gain one, or none. Two things show this: samples that stand for more than R, and
the allocator's own count of each class.

So a site is judged by grains, the bytes that a sample stands for. On the side that has more, gained or lost, the grain is that of its
samples. On the other side, what was not seen counts, and its grain may have been as coarse as the coarsest of the class. If a class's
samples gained less than the count, beyond chance, the missing part is added as one more, unseen sample. Deviations within chance are
shared out by the squares of what each sample stands for, so that mainly the coarse samples are corrected: scaling all would take from
sites with threads that gave up nothing. If all samples of a class stand for R bytes, nothing of this is done.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from hakmem.snapshots import Sample, Snapshot

GAINED, LOST = 0, 1  # the sides

_BY_CHANCE = 2.5  # samples deviate from the count by this many standard errors before some count as missing
_LARGE = 0  # in place of a class's size; samples of large blocks are never given up


def _alike(grains: tuple[float, float]) -> bool:
    return math.isclose(*grains, rel_tol=0.01)


@dataclass
class Side:
    """Samples that were gained, or lost."""

    bytes: float = 0.0  # what they stand for
    squares: float = 0.0  # the sum of its squares, sample by sample
    coarsest: float = 0.0

    def add(self, weight: float) -> None:
        self.include(Side(weight, weight * weight, weight))

    def include(self, other: Side) -> None:
        self.bytes += other.bytes
        self.squares += other.squares
        self.coarsest = max(self.coarsest, other.coarsest)

    @property
    def grain(self) -> float:
        return self.squares / self.bytes if self.bytes else 0.0

    def shift(self, part: float) -> None:
        """Shifts each sample by that fraction of its square, as if there were fewer or more samples of the same grain."""
        factor = max(0.0, 1 + part * self.grain)
        self.bytes *= factor
        self.squares *= factor


@dataclass
class Moves:
    """What changed among sampled blocks, without those that are always sampled."""

    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))
    off: float = 0.0  # for a class: the excess of its samples' gain over the count, per square byte

    def include(self, other: Moves) -> None:
        for side, added in zip(self.sides, other.sides):
            side.include(added)

    @property
    def change(self) -> float:
        return self.sides[GAINED].bytes - self.sides[LOST].bytes

    @property
    def squares(self) -> float:
        return sum(side.squares for side in self.sides)

    @property
    def grains(self) -> tuple[float, float]:
        """The coarsest grain of each side; a side without samples has that of the other."""
        gained, lost = (side.coarsest for side in self.sides)
        return gained or lost, lost or gained

    def count(self, growth: int, rate: int) -> None:
        """Compares a class's samples with the growth of its live bytes. If no sample moved, growth by several times R may be chance."""
        missing = growth - self.change
        by_chance = _BY_CHANCE**2 * max(self.squares, rate * abs(growth))
        if missing**2 > by_chance:
            self.sides[GAINED if missing > 0 else LOST].add(math.sqrt(missing**2 - by_chance))
        if not _alike(self.grains):
            self.off = (self.change - growth) / self.squares

    def shift(self, off: float) -> None:
        self.sides[GAINED].shift(-off)
        self.sides[LOST].shift(off)


@dataclass
class Site:
    """What changed among the sampled blocks of a site."""

    certain: int = 0  # bytes of blocks that are always sampled
    moves: Moves = field(default_factory=Moves)
    of_class: dict[int, Moves] = field(default_factory=lambda: defaultdict(Moves))
    sampling: float = 0.0  # the variance from sampling
    grains: tuple[float, float] = (1.0, 1.0)  # of the sides

    def add(self, sample: Sample, side: int, size: int) -> None:
        if sample.chance == 1:
            self.certain += sample.size if side == GAINED else -sample.size
            return
        self.of_class[size].sides[side].add(sample.weight)
        self.sampling += sample.variance

    def weigh(self, classes: dict[int, Moves]) -> None:
        for size, moves in self.of_class.items():
            moves.shift(classes[size].off)
            self.moves.include(moves)
        more = GAINED if self.moves.change > 0 else LOST
        seen = self.moves.sides[more]
        if not seen.bytes:
            return
        unseen = sum(moves.sides[more].bytes * classes[size].grains[1 - more] for size, moves in self.of_class.items())
        grains = seen.grain, unseen / seen.bytes
        self.grains = grains if more == GAINED else grains[::-1]

    @property
    def change(self) -> float:
        return self.certain + self.moves.change

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of samples of these grains that were gained and lost."""
        gained, lost = (round(side.bytes / grain) for side, grain in zip(self.moves.sides, self.grains))
        return gained, lost

    @property
    def odds(self) -> float:
        """The chance that a sample that moves was gained, if the site holds as much as before."""
        return 0.5 if _alike(self.grains) else self.grains[LOST] / sum(self.grains)

    @property
    def error(self) -> float:
        """The standard error of the change; if grains differ, that of equally many bytes on either side."""
        if _alike(self.grains):
            return math.sqrt(self.sampling)
        return math.sqrt(max(side.bytes for side in self.moves.sides) * sum(self.grains))


def _growth(before: Snapshot, after: Snapshot) -> dict[int, int]:
    """The growth of the live bytes of each class."""
    growth: Counter[int] = Counter()
    for snapshot, sign in ((before, -1), (after, 1)):
        for each in snapshot.classes:
            growth[each.block_size] += sign * each.live * each.block_size
    return growth


def _moved(before: Snapshot, after: Snapshot, site_of: Callable[[Sample], int]) -> dict[int, Site]:
    """A sample that stands for more than before counts as lost, and as another one gained."""
    sizes = {each.block_size for snapshot in (before, after) for each in snapshot.classes}
    old = {sample.address: sample for sample in before.samples}
    new = {sample.address: sample for sample in after.samples}
    found: dict[int, Site] = {site_of(sample): Site() for sample in (*old.values(), *new.values())}
    for address in old.keys() | new.keys():
        one, other = old.get(address), new.get(address)
        if one and other and (site_of(one), one.size, one.chance) == (site_of(other), other.size, other.chance):
            continue
        for sample, side in ((one, LOST), (other, GAINED)):
            if sample:
                is_large = sample.large or sample.size not in sizes
                found[site_of(sample)].add(sample, side, _LARGE if is_large else sample.size)
    return found


def sites(before: Snapshot, after: Snapshot, site_of: Callable[[Sample], int]) -> dict[int, Site]:
    found = _moved(before, after, site_of)
    classes: dict[int, Moves] = defaultdict(Moves)
    for site in found.values():
        for size, moves in site.of_class.items():
            classes[size].include(moves)
    growth = _growth(before, after)
    for size in classes.keys() & growth.keys():
        classes[size].count(growth[size], after.rate)
    for site in found.values():
        site.weigh(classes)
    return found

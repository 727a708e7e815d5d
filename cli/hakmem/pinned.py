"""Who keeps pages in use that are mostly free: estimates from the tracked slabs of a snapshot, scaled to what was counted.

A page of a slab stays while it has a live block. The bytes of the page outside live blocks are its waste. The snapshot counts the waste of
all slabs, by size class and by how full they are: a stratum. The sites of blocks are known in tracked slabs, which are chosen at random.
There a page's waste is counted as

    sole     one site's, if all live blocks on the page are that site's: it goes, besides the site's blocks, if this site alone lets go
    shared   divided equally among the sites that have a live block on the page: these sum to the whole

With n of a stratum's N slabs tracked, w their waste and y a line's part of that, the line has W * sum(y) / sum(w), where W is the
stratum's waste. To first order, with r = sum(y) / sum(w) and m the mean of w, the variance by slabs is

    (W / m)² * (1 - n / N) / n * sum((y - r * w)²) / (n - 1)

Strata are sampled independently, so their variances add.

The *separable* part is estimated in the same way: the waste of pages that are kept only by sites with lasting blocks, and
on which the freed blocks were from sites with passing blocks. A live block of 10 s or more counts as lasting, a freed one as
passing; a site is of one kind if 9 of 10 of its blocks that count are. The estimate is an upper bound of what keeping such
sites apart would save, since a site has not always done what it did here last.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from hakmem.estimates import apportion
from hakmem.snapshots import Snapshot, Stratum, Survivor, TrackedSlab

NOT_TRACKED = "(not tracked)"

# With fewer tracked slabs than this there is no estimate; a stratum with fewer is merged with its neighbours.
TOO_FEW = 8

_LASTING = 10.0  # seconds
_TELL = 10  # the least number of a site's blocks that are as old, or freed
_PURE = 0.9


@dataclass
class PinnedLine:
    """What is kept by one key: a site or a function."""

    key: Hashable
    shared: int = 0
    sole: int = 0
    shared_variance: float = 0.0
    sole_variance: float = 0.0
    slabs: int = 0  # tracked slabs of which it keeps pages
    youngest: float | None = None  # seconds
    oldest: float | None = None

    @property
    def shared_error(self) -> float:
        """The standard error."""
        return math.sqrt(self.shared_variance)

    @property
    def sole_error(self) -> float:
        return math.sqrt(self.sole_variance)


@dataclass
class Pinned:
    """All that pages hold besides live blocks, and who keeps it."""

    waste: int = 0
    pages: int = 0
    idle: int = 0
    slabs: int = 0
    tracked: int = 0
    quiet: int = 0  # survivors whose record may be an earlier block's
    survivors: int = 0
    separable: int | None = None  # None: no site's blocks are known to last
    separable_variance: float = 0.0
    lines: list[PinnedLine] = field(default_factory=list)  # the largest first; `shared` sums to the waste

    @property
    def too_small(self) -> bool:
        """Whether there are too few tracked slabs to estimate who keeps the pages."""
        return self.tracked < min(TOO_FEW, self.slabs)

    @property
    def separable_error(self) -> float:
        return math.sqrt(self.separable_variance)


@dataclass
class _Parts:
    """The waste of one tracked slab's pages, by key."""

    waste: int = 0
    separable: int = 0
    shared: dict[Hashable, float] = field(default_factory=lambda: defaultdict(float))
    sole: dict[Hashable, float] = field(default_factory=lambda: defaultdict(float))


def _pages_of(slab: TrackedSlab, survivor: Survivor, page_size: int) -> Iterable[tuple[int, int]]:
    """The wasteful pages that the block lies on, with its bytes on each."""
    start = survivor.block * slab.block_size
    end = start + slab.block_size
    for page in range(start // page_size, (end - 1) // page_size + 1):
        if slab.pages >> page & 1:
            yield page, min(end, (page + 1) * page_size) - max(start, page * page_size)


@dataclass
class _Lives:
    """The keys with lasting blocks, and those with passing ones."""

    lasting: set[Hashable] = field(default_factory=set)
    passing: set[Hashable] = field(default_factory=set)


def _lives(slabs: list[TrackedSlab], key_of: Callable[[int], Hashable]) -> _Lives:
    """The keys with enough blocks to judge; blocks without a site count for no key."""
    stay: dict[Hashable, int] = defaultdict(int)
    went: dict[Hashable, int] = defaultdict(int)
    for slab in slabs:
        for survivor in slab.survivors:
            if survivor.site and survivor.age >= _LASTING:
                stay[key_of(survivor.site)] += 1
        for freed in slab.freed:
            if freed.site:
                went[key_of(freed.site)] += freed.blocks
    lives = _Lives()
    for key in stay.keys() | went.keys():
        told = stay[key] + went[key]
        if told >= _TELL and stay[key] >= _PURE * told:
            lives.lasting.add(key)
        elif told >= _TELL and went[key] >= _PURE * told:
            lives.passing.add(key)
    return lives


def _parts(slab: TrackedSlab, page_size: int, key_of: Callable[[int], Hashable], lives: _Lives) -> _Parts:
    held: dict[int, int] = defaultdict(int)
    keys: dict[int, set[Hashable]] = defaultdict(set)
    for survivor in slab.survivors:
        key = key_of(survivor.site)
        for page, size in _pages_of(slab, survivor, page_size):
            held[page] += size
            keys[page].add(key)
    beside: dict[int, set[Hashable]] = defaultdict(set)
    for freed in slab.freed:
        beside[freed.page].add(key_of(freed.site))
    parts = _Parts()
    for page, size in held.items():
        waste = page_size - size
        parts.waste += waste
        for key in keys[page]:
            parts.shared[key] += waste / len(keys[page])
        if len(keys[page]) == 1:
            parts.sole[key] += waste
        if keys[page] <= lives.lasting and beside[page] and beside[page] <= lives.passing:
            parts.separable += waste
    return parts


@dataclass
class _Pool:
    """Merged strata of one class, and their tracked slabs."""

    waste: int = 0
    slabs: int = 0
    parts: list[_Parts] = field(default_factory=list)

    def take(self, other: _Pool) -> None:
        self.waste += other.waste
        self.slabs += other.slabs
        self.parts += other.parts

    @property
    def known(self) -> bool:
        """Whether the tracked slabs allow an estimate of the rest, and of its error."""
        return sum(each.waste for each in self.parts) > 0 and len(self.parts) >= min(2, self.slabs)


def _pools(snapshot: Snapshot, parts: dict[tuple[int, int], list[_Parts]]) -> Iterable[_Pool]:
    classes: dict[int, list[Stratum]] = defaultdict(list)
    for stratum in snapshot.strata:
        classes[stratum.block_size].append(stratum)
    for size, strata in classes.items():
        pools: list[_Pool] = []
        for stratum in sorted(strata, key=lambda each: each.quarter):
            found = parts.get((size, stratum.quarter), [])
            # While the snapshot was written, a slab may have changed its stratum, or ended.
            pool = _Pool(stratum.waste, max(stratum.slabs, len(found)), found)
            if pools and min(len(pools[-1].parts), len(found)) < TOO_FEW:
                pools[-1].take(pool)
            else:
                pools.append(pool)
        yield from pools


@dataclass
class _Sums:
    """Sums over the tracked slabs of a pool: a line's part of each, its square, and its product with the slab's waste."""

    part: float = 0.0
    square: float = 0.0
    product: float = 0.0
    slabs: int = 0

    def add(self, part: float, waste: float) -> None:
        self.part += part
        self.square += part * part
        self.product += part * waste
        self.slabs += 1


def _variance(pool: _Pool, sums: _Sums) -> float:
    count = len(pool.parts)
    if count == pool.slabs:
        return 0.0
    whole = sum(each.waste for each in pool.parts)
    share = sums.part / whole
    squares = sums.square - 2 * share * sums.product + share * share * sum(each.waste**2 for each in pool.parts)
    if share >= 1:  # other lines may have slabs that are not tracked: as if half of one tracked slab were theirs
        squares = 0.5 * (whole / count) ** 2
    scale = pool.waste * count / whole
    return scale * scale * (1 - count / pool.slabs) / count * max(0.0, squares) / (count - 1)


class _Estimate:
    def __init__(self) -> None:
        self.lines: dict[Hashable, PinnedLine] = {}
        self.separable = 0.0
        self.separable_variance = 0.0

    def line(self, key: Hashable) -> PinnedLine:
        return self.lines.setdefault(key, PinnedLine(key))

    def add(self, pool: _Pool) -> None:
        if not pool.known:
            if pool.waste:
                self.line(NOT_TRACKED).shared += pool.waste
            return
        whole = sum(each.waste for each in pool.parts)
        separable = _Sums()
        for parts in pool.parts:
            separable.add(parts.separable, parts.waste)
        self.separable += pool.waste * separable.part / whole
        self.separable_variance += _variance(pool, separable)
        shared: dict[Hashable, _Sums] = defaultdict(_Sums)
        sole: dict[Hashable, _Sums] = defaultdict(_Sums)
        for parts in pool.parts:
            for key, part in parts.shared.items():
                shared[key].add(part, parts.waste)
            for key, part in parts.sole.items():
                sole[key].add(part, parts.waste)
        for key, waste in apportion(pool.waste, {key: sums.part for key, sums in shared.items()}).items():
            line = self.line(key)
            line.shared += waste
            line.sole += round(pool.waste * sole[key].part / whole)
            line.slabs += shared[key].slabs
            line.shared_variance += _variance(pool, shared[key])
            line.sole_variance += _variance(pool, sole[key])

    def see(self, survivor: Survivor, key: Hashable) -> None:
        line = self.lines.get(key)
        if line is None:
            return
        line.youngest = survivor.age if line.youngest is None else min(line.youngest, survivor.age)
        line.oldest = survivor.age if line.oldest is None else max(line.oldest, survivor.age)


def estimate(snapshot: Snapshot, key_of: Callable[[int], Hashable] = lambda site: site) -> Pinned:
    """What is kept, by each site's `key_of`. The lines' shared bytes sum to the waste."""
    pinned = Pinned()
    for stratum in snapshot.strata:
        pinned.waste += stratum.waste
        pinned.pages += stratum.pages
        pinned.idle += stratum.idle
        pinned.slabs += stratum.slabs
        pinned.tracked += stratum.tracked
    parts: dict[tuple[int, int], list[_Parts]] = defaultdict(list)
    estimates = _Estimate()
    if pinned.too_small or not snapshot.tracked:
        if pinned.waste:
            estimates.line(NOT_TRACKED).shared = pinned.waste
        pinned.lines = list(estimates.lines.values())
        return pinned
    lives = _lives(snapshot.tracked, key_of)
    for slab in snapshot.tracked:
        parts[slab.block_size, slab.quarter].append(_parts(slab, snapshot.page_size, key_of, lives))
    for pool in _pools(snapshot, parts):
        estimates.add(pool)
    for slab in snapshot.tracked:
        for survivor in slab.survivors:
            estimates.see(survivor, key_of(survivor.site))
            pinned.survivors += 1
            pinned.quiet += survivor.quiet
    if lives.lasting:
        pinned.separable, pinned.separable_variance = round(estimates.separable), estimates.separable_variance
    pinned.lines = sorted(estimates.lines.values(), key=lambda line: (-line.shared, str(line.key)))
    return pinned

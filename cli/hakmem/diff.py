"""What changed between two profiles beyond what sampling explains.

Two snapshots of one process are a panel: the same places are sampled in both, so that what did not change adds no error. All samples
stand for the same number of bytes, except blocks that are always sampled. So a site that holds as much as before gains and loses sampled
blocks equally often, and its change is judged as tosses of a fair coin. If samples were given up in between, the coin is not fair, and
panel.py computes its odds. Profiles of two processes are sampled independently, and each adds its own error.

Many sites are judged together. Benjamini and Hochberg's procedure keeps the expected share of false ones among the reported ones at 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from hakmem import panel, pprof_files
from hakmem.calls import Called, Calls
from hakmem.errors import Failure
from hakmem.estimates import NOT_SAMPLED, UNKNOWN, Line, Stacks, estimate
from hakmem.names import printable
from hakmem.panel import Site
from hakmem.snapshots import Sample, Snapshot, is_snapshot, of_bytes
from hakmem.symbols import CLOSED, VIRTUAL, Frame, Symbols

LEVEL = 0.05

_EXACT_UP_TO = 100  # expected tosses of the rarer outcome; beyond this the normal distribution is as good
_FEW = 20  # samples; below this the normal distribution is not good enough
_UNSEEN = 10  # times what a sample stands for: a class that holds this much has no sample by chance in one of 20,000 cases


@dataclass
class Change(Called):
    """The change in one site's live bytes."""

    key: Hashable
    before: int
    after: int
    change: float
    error: float  # standard error of the change
    chance: float  # of a change as large as this, if nothing had changed
    adjusted: float = 1.0  # the same, adjusted for the number of sites
    calls: Calls = field(default_factory=Calls)

    @property
    def told(self) -> bool:
        return self.adjusted <= LEVEL


@dataclass
class Difference:
    changes: list[Change]  # the largest first
    before: int
    after: int
    panel: bool
    remarks: list[str]

    @property
    def told(self) -> list[Change]:
        return [change for change in self.changes if change.told]


# ---- Statistics ----


def normal_chance(change: float, error: float) -> float:
    """The chance of a deviation from 0 as large as this, to either side."""
    if not error:
        return 0.0 if change else 1.0
    return math.erfc(abs(change) / error / math.sqrt(2))


def coin_chance(heads: int, tails: int, chance: float = 0.5) -> float:
    """The chance of a result as uneven as this, if `chance` is that of heads."""
    tosses = heads + tails
    if tosses * min(chance, 1 - chance) > _EXACT_UP_TO:
        spread = math.sqrt(tosses * chance * (1 - chance))
        return normal_chance(heads - tosses * chance, spread)
    return min(1.0, 2 * min(_at_most(heads, tosses, chance), _at_most(tails, tosses, 1 - chance)))


def _at_most(heads: int, tosses: int, chance: float) -> float:
    """The chance of at most so many heads. Uses logarithms, since combinations of many tosses overflow a float."""
    if not 0 < chance < 1:
        return float(heads == tosses or not chance)
    ways = (math.lgamma(tosses + 1) - math.lgamma(k + 1) - math.lgamma(tosses - k + 1) for k in range(heads + 1))
    return sum(math.exp(way + k * math.log(chance) + (tosses - k) * math.log1p(-chance)) for k, way in enumerate(ways))


def adjust(changes: Sequence[Change]) -> None:
    """Benjamini and Hochberg's procedure: a change is reported if its adjusted chance is at most LEVEL."""
    ordered = sorted(changes, key=lambda change: change.chance, reverse=True)
    least = 1.0
    for index, change in enumerate(ordered):
        least = min(least, change.chance * len(ordered) / (len(ordered) - index))
        change.adjusted = least


# ---- One process ----


def _is_same(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether both are the same site: one in a library that was closed in between has another address since."""
    return one[0] == other[0] and (one[1] == other[1] or max(one[1], other[1]) >= CLOSED)


def _same_kernel_code(before: Snapshot, after: Snapshot) -> bool:
    """Whether the kernel's code is where it was: its place is drawn for each process, even for a program that is always at one address."""
    one, other = ({each.path: each.start for each in snapshot.mappings if each.path in VIRTUAL} for snapshot in (before, after))
    return all(one[path] == other[path] for path in one.keys() & other.keys())


def is_panel(before: Snapshot, after: Snapshot) -> bool:
    """Whether both are of one process: its sites never change, and no two processes have theirs at the same addresses, unless they run a
    static program, each as the first process of a namespace. A snapshot may contain only the sites of its blocks."""
    common = before.sites.keys() & after.sites.keys()
    known = all(_is_same(before.sites[number], after.sites[number]) for number in common)
    is_alike = before.process == after.process and before.rate == after.rate and _same_kernel_code(before, after)
    return is_alike and bool(common) and known


def _panel_chance(site: Site) -> float:
    """The chance by the counts of samples; blocks that are always sampled leave nothing to count."""
    if site.certain:
        return normal_chance(site.change, site.error)
    return coin_chance(*site.counts, site.odds)


def _panel(before: Snapshot, after: Snapshot) -> Difference:
    old, new = Symbols(before), Symbols(after)

    def symbols_of(site: int) -> Symbols:
        return new if site in after.sites else old

    def site_of(sample: Sample) -> int:
        return symbols_of(sample.site).outside(sample.site)

    held = [{line.key: line.bytes for line in estimate(snapshot, site_of)} for snapshot in (before, after)]
    changes = [
        Change(key, *(each.get(key, 0) for each in held), site.change, site.error, _panel_chance(site))
        for key, site in panel.sites(before, after, site_of).items()
    ]
    adjust(changes)
    for change in changes:
        change.calls = symbols_of(change.key).calls(change.key)
    remarks = list(dict.fromkeys(old.remarks() + new.remarks()))
    return Difference(changes, before.live_bytes, after.live_bytes, True, remarks)


# ---- Two processes ----


@dataclass
class _Side:
    stacks: Stacks
    total: int
    calls: dict[tuple, Calls]
    remarks: list[str]
    coarsest: float = 0.0  # the most bytes that a sample stands for; 0: no more than the rate

    @property
    def grain(self) -> float:
        return max(self.coarsest, self.stacks.rate)


def _frame_key(frame: Frame) -> tuple[str, int | None, str]:
    if frame.mapping is None:
        return "", None, frame.name
    return frame.mapping.build_id, frame.address - frame.mapping.start + frame.mapping.offset, frame.name


def _add(lines: dict[tuple, Line], key: tuple, line: Line) -> None:
    sum_ = lines.setdefault(key, Line(key))
    sum_.bytes += line.bytes
    sum_.samples += line.samples
    sum_.uncertain += line.uncertain
    sum_.stood_for += line.stood_for
    sum_.squares += line.squares
    sum_.variance += line.variance


def _coarsest(snapshot: Snapshot) -> float:
    """The most bytes that a sample stands for, by the samples and by classes that should have samples but have none."""
    seen = {sample.size for sample in snapshot.samples if not sample.large}
    held = [each.live * each.block_size for each in snapshot.classes if each.block_size not in seen]
    weights = [sample.weight for sample in snapshot.samples if sample.chance < 1]
    return max([0.0, *weights, *(each for each in held if each > _UNSEEN * snapshot.rate)])


def _side_of_snapshot(snapshot: Snapshot) -> _Side:
    symbols = Symbols(snapshot)
    lines = estimate(snapshot, lambda sample: symbols.outside(sample.site), cautious=True)
    stacks = Stacks(snapshot.file, snapshot.rate)
    side = _Side(stacks, snapshot.live_bytes, {}, symbols.remarks(), _coarsest(snapshot))
    for line in lines:
        key = tuple(_frame_key(frame) for frame in symbols.stack(line.key))
        _add(side.stacks.lines, key, line)
        side.calls[key] = symbols.calls(line.key)
    return side


def _side_of_pprof(stacks: Stacks) -> _Side:
    side = _Side(Stacks(stacks.file, stacks.rate), sum(line.bytes for line in stacks.lines.values()), {}, [])
    for key, line in stacks.lines.items():
        names = [frame[2] for frame in key]
        if names == [NOT_SAMPLED]:
            continue
        place = () if names == [UNKNOWN] else key  # as a snapshot represents blocks without a stack
        _add(side.stacks.lines, place, line)
        side.calls[place] = Calls([(printable(name), "") for _, _, name in place])
    return side


def _common(sides: Sequence[_Side]) -> set[str]:
    """The files that both processes ran: calls in these are distinguished by address, in other files by function name."""
    one, other = ({frame[0] for key in side.stacks.lines for frame in key} for side in sides)
    return (one & other) - {""}


def _counted(line: Line, coarsest: float) -> tuple[int, float]:
    """The number of samples and what each stands for, as if all were equal; unseen ones may be as coarse as the coarsest of the side."""
    if not line.stood_for:
        return line.uncertain, coarsest
    grain = line.squares / line.stood_for
    return round(line.stood_for / grain), grain


def _chance(before: Line, after: Line, coarsest: tuple[float, float]) -> float:
    """Judges new and vanished sites, and those with few samples, by counting; blocks that are always sampled leave nothing to count."""
    (lost, one), (gained, other) = (_counted(*each) for each in zip((before, after), coarsest))
    only_chance = before.samples == before.uncertain and after.samples == after.uncertain
    few = lost + gained < _FEW or not (lost and gained) or (min(lost, gained) < _FEW and not math.isclose(one, other, rel_tol=0.01))
    if only_chance and lost + gained and few:
        return coin_chance(lost, gained, other / (one + other))
    return normal_chance(after.bytes - before.bytes, math.sqrt(before.variance + after.variance))


def _apart(sides: Sequence[_Side]) -> Difference:
    common = _common(sides)
    lines: tuple[dict, dict] = ({}, {})
    calls: dict[tuple, Calls] = {}
    for side, merged in zip(sides, lines):
        for key, line in side.stacks.lines.items():
            places = (frame[:2] if frame[0] in common and frame[1] is not None else frame[2] for frame in key)
            place = tuple(each for each, _ in groupby(places))  # only once for functions that were inlined into others
            _add(merged, place, line)
            calls[place] = side.calls[key]
    coarsest = sides[0].grain, sides[1].grain
    changes = []
    for key in lines[0].keys() | lines[1].keys():
        before, after = (each.get(key, Line(key)) for each in lines)
        error = math.sqrt(before.variance + after.variance)
        change = after.bytes - before.bytes
        chance = _chance(before, after, coarsest)
        changes.append(Change(key, before.bytes, after.bytes, change, error, chance, calls=calls[key]))
    adjust(changes)
    remarks = list(dict.fromkeys(sides[0].remarks + sides[1].remarks))
    return Difference(changes, sides[0].total, sides[1].total, False, remarks)


def read(path: str) -> Snapshot | Stacks:
    """The snapshot or pprof file; raises Failure if it can't be compared with anything."""
    data = Path(path).read_bytes()
    found = of_bytes(data, path) if is_snapshot(data) else pprof_files.decode(data, path)
    _expect_samples(found)
    return found


def _expect_samples(taken: Snapshot | Stacks) -> None:
    if not taken.rate:
        raise Failure(f"{taken.file}: no blocks were sampled: HAKMEM_INSIGHT=0, or the secure library")


def compare(before: Snapshot | Stacks, after: Snapshot | Stacks) -> Difference:
    for each in (before, after):
        _expect_samples(each)
    if isinstance(before, Snapshot) and isinstance(after, Snapshot) and is_panel(before, after):
        difference = _panel(before, after)
    else:
        sides = [
            _side_of_snapshot(each) if isinstance(each, Snapshot) else _side_of_pprof(each) for each in (before, after)
        ]
        difference = _apart(sides)
    difference.changes.sort(key=lambda change: (-abs(change.change), str(change.key)))
    return difference


def compare_files(before: str, after: str) -> Difference:
    return compare(read(before), read(after))

"""hakmem diff of one process that allocated so fast that samples were given up: a sample less is no block less.

Pairs of snapshots are drawn from what is known of sampling: a live byte has the chance 1 / R, halved as often as its place was given up.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from heap import CODE, RATE
from processes import compiled, running

from hakmem import snapshots
from hakmem.diff import compare
from hakmem.snapshots import Sample, SizeClass, Snapshot

MIB = 1 << 20
PAIRS = 200
# So many of 200 equal pairs may raise an alarm, if 5 % do: the binomial distribution's 99.9 %.
MOST_ALARMS = 21

HELD = {site: int(1.5**site * MIB / 4) for site in range(1, 13)}  # 0.4 to 32 MiB
GROWN = 40  # the site that holds more, where one does
SMALL, LARGE = 256, 1024


class Pair:
    """Two snapshots of a process. `before` and `after` tell how often places were given up."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._places = 0
        self._samples: tuple[list[Sample], list[Sample]] = ([], [])
        self._live: tuple[Counter[int], Counter[int]] = (Counter(), Counter())

    def _sampled(self, size: float) -> list[int]:
        """Places in that many bytes, by Poisson's distribution."""
        places = []
        left = size / RATE - self.random.expovariate(1)
        while left > 0:
            self._places += 1
            places.append(self._places << 16)
            left -= self.random.expovariate(1)
        return places

    def _add(self, side: int, place: int, block: int, site: int, given_up: int) -> None:
        chance = block / RATE / 2**given_up
        self._samples[side].append(Sample(place, block, block, chance, site, 0, 1.0, False))

    def hold(self, side: int, site: int, block: int, size: int, given_up: int = 0) -> None:
        self._live[side][block] += size // block
        for place in self._sampled(size / 2**given_up):
            self._add(side, place, block, site, given_up)

    def keep(self, site: int, block: int, size: int, given_up: int = 0) -> None:
        for live in self._live:
            live[block] += size // block
        for place in self._sampled(size / 2**given_up):
            for side in (0, 1):
                self._add(side, place, block, site, given_up)

    def replace(self, site: int, block: int, size: int, before: int = 0, after: int = 0) -> None:
        """By others in other places."""
        self.hold(0, site, block, size, before)
        self.hold(1, site, block, size, after)

    def reuse(self, site: int, block: int, size: int, after: int) -> None:
        """By others in the same places, of which coins have told which are left."""
        for live in self._live:
            live[block] += size // block
        for place in self._sampled(size):
            self._add(0, place, block, site, 0)
            if self.random.random() < 2**-after:
                self._add(1, place, block, site, after)

    def snapshots(self) -> list[Snapshot]:
        sites = {site: (0, CODE + 16 * site) for site in (*HELD, GROWN)}
        return [
            Snapshot(
                process=77,
                rate=RATE,
                samples=samples,
                sites=sites,
                classes=[SizeClass(block, 1 << 16, 1, count, 0, 0, 0) for block, count in live.items()],
            )
            for samples, live in zip(self._samples, self._live)
        ]


def nothing(pair: Pair) -> None:
    for site, size in HELD.items():
        pair.keep(site, SMALL, size // 2)
        pair.replace(site, SMALL, size // 2)


def half(pair: Pair) -> None:
    for site, size in HELD.items():
        pair.replace(site, SMALL, size, after=1)


def most(pair: Pair) -> None:
    for site, size in HELD.items():
        pair.replace(site, SMALL, size, after=3)


def nearly_all(pair: Pair) -> None:
    for site, size in HELD.items():
        pair.reuse(site, SMALL, size, after=8)


def more_and_more(pair: Pair) -> None:
    for site, size in HELD.items():
        for given_up in range(7):
            pair.replace(site, SMALL, size // 7, after=given_up)


def one_class(pair: Pair) -> None:
    for site, size in HELD.items():
        pair.replace(site, LARGE, size // 2)
        pair.reuse(site, SMALL, size // 2, after=6)


def some_sites(pair: Pair) -> None:
    for site, size in HELD.items():
        pair.replace(site, SMALL, size, after=6 if site % 3 == 0 else 0)


def one_of_two(pair: Pair) -> None:
    pair.replace(1, SMALL, 2 * MIB, after=6)
    pair.keep(2, SMALL, 40 * MIB)


def not_any_more(pair: Pair) -> None:
    for site, size in HELD.items():
        pair.replace(site, SMALL, size, before=5)


def now_and_then(pair: Pair) -> None:
    for site, size in HELD.items():
        for block in (SMALL, LARGE):
            pair.keep(site, block, size // 4, given_up=3)
            pair.replace(site, block, size // 4, pair.random.randrange(5), pair.random.randrange(5))


KINDS = [
    nothing,
    half,
    most,
    nearly_all,
    more_and_more,
    one_class,
    some_sites,
    one_of_two,
    not_any_more,
    now_and_then,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_samples_given_up_seldom_raise_an_alarm(kind):
    alarms = 0
    for seed in range(PAIRS):
        pair = Pair(seed)
        kind(pair)
        difference = compare(*pair.snapshots())
        assert difference.panel
        alarms += bool(difference.told)
    assert alarms <= MOST_ALARMS


@pytest.mark.parametrize("given_up", [(0, 3), (3, 0), (6, 0), (2, 5)], ids=str)
@pytest.mark.parametrize("size", [MIB, 4 * MIB, 40 * MIB], ids=lambda size: f"{size // MIB} MiB")
def test_a_process_that_gave_up_samples_seldom_raises_an_alarm_beside_one_that_did_not(given_up, size):
    alarms = 0
    for seed in range(PAIRS):
        pair = Pair(seed)
        for site in HELD:
            for side in (0, 1):
                pair.hold(side, site, SMALL, size, given_up[side])
        before, after = pair.snapshots()
        difference = compare(before, replace(after, process=78))
        assert not difference.panel
        alarms += bool(difference.told)
    assert alarms <= MOST_ALARMS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_growth_beside_them_is_found(kind):
    found = 0
    runs = 20
    for seed in range(runs):
        pair = Pair(seed)
        kind(pair)
        pair.hold(1, GROWN, SMALL, 39 * MIB)
        told = {change.key: change for change in compare(*pair.snapshots()).told}
        found += GROWN in told and abs(told[GROWN].change - 39 * MIB) < 4 * told[GROWN].error
    assert found >= 0.9 * runs


@pytest.mark.parametrize("left", [0, 2])
def test_what_is_freed_is_told_where_the_allocator_counts_less(left):
    pair = Pair(1)
    pair.hold(0, 1, SMALL, 40 * MIB)
    pair.hold(1, 1, SMALL, MIB)
    pair.replace(2, LARGE, left * MIB, after=6)
    (change,) = compare(*pair.snapshots()).told
    assert change.key == 1 and change.change == pytest.approx(-39 * MIB, rel=0.2)


@pytest.fixture(scope="module")
def replaced(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("replaced"), Path(__file__).parent / "replaced.c")


@pytest.mark.parametrize("grown", [[], ["39"]], ids=["alone", "beside growth"])
def test_a_process_that_replaces_what_it_holds_holds_as_much(hakmem, replaced, tmp_path, grown):
    file = tmp_path / "heap"
    for _ in range(5):
        with running(replaced, str(file), *grown, HAKMEM_INSIGHT="2"):
            before, after = (f"{file}.{name}" for name in ("before", "after"))
        samples = snapshots.read(after).samples
        assert len(snapshots.read(before).samples) > 200
        assert sum(sample.weight < 2 * RATE for sample in samples) < 20 or grown
        result = json.loads(hakmem("diff", "--json", before, after).stdout)
        told = [site["frames"][0]["function"] for site in result["sites"] if site["changed"]]
        assert told == ["added"] * len(grown)

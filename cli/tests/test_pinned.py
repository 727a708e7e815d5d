"""Who keeps pages: estimates that sum to what the allocator counted, with honest errors."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter

import pytest
from heap import PAGE, UNIT, Heap, mixed, pages_of, pin, slabs_of, text_of

from hakmem import insight
from hakmem.pinned import NOT_TRACKED, TOO_FEW, estimate
from hakmem.snapshots import Freed, Snapshot, Stratum, Survivor, TrackedSlab
from hakmem.symbols import Symbols

# Sparse and dense slabs, blocks that lie across pages, and a class of one site.
BLOCKS = {2: 600, 3: 300, 4: 100}
HEAP = Heap(
    {
        64: mixed(BLOCKS, free=60_000) + mixed({2: 6_000, 3: 3_000}, free=300, seed=2),
        176: mixed(BLOCKS, free=9_000),
        1280: mixed(BLOCKS, free=2_000),
        4096: mixed({2: 30}, free=3),
        3072: mixed({5: 200}, free=200),
    }
)


def truth(heap: Heap) -> tuple[dict[int, float], Counter[int]]:
    """What each site shares and keeps alone."""
    shared: dict[int, float] = Counter()
    sole: Counter[int] = Counter()
    for size, _, sites in slabs_of(heap):
        for held, of in pages_of(size, sites):
            for site in of:
                shared[site] += (PAGE - held) / len(of)
            if len(of) == 1:
                sole[min(of)] += PAGE - held
    return shared, sole


def waste_of(taken: Snapshot) -> int:
    return sum(stratum.waste for stratum in taken.strata)


def test_where_all_slabs_are_tracked_all_is_exact():
    taken = pin(Snapshot(), HEAP, every=1)
    found = estimate(taken)
    shared, sole = truth(HEAP)
    assert found.waste == waste_of(taken) == sum(line.shared for line in found.lines)
    assert found.tracked == found.slabs == len(taken.tracked)
    assert {line.key for line in found.lines} == {2, 3, 4, 5}
    for line in found.lines:
        assert line.shared == pytest.approx(shared[line.key], abs=10)
        assert line.sole == pytest.approx(sole[line.key], abs=10)
        assert (line.shared_error, line.sole_error) == (0, 0)
        assert line.sole <= line.shared
        assert (line.youngest, line.oldest) == (line.key, line.key)  # as heap.py has it
    assert [line.shared for line in found.lines] == sorted((line.shared for line in found.lines), reverse=True)


def test_estimates_sum_are_unbiased_and_their_errors_honest():
    shared, sole = truth(HEAP)
    runs = 300
    off: dict[tuple[int, str], list[float]] = {(site, kind): [] for site in (2, 3, 4) for kind in ("shared", "sole")}
    for seed in range(runs):
        taken = pin(Snapshot(), HEAP, every=4, seed=seed)
        found = estimate(taken)
        assert sum(line.shared for line in found.lines) == found.waste == waste_of(taken)
        lines = {line.key: line for line in found.lines}
        known = 1 - (lines[NOT_TRACKED].shared / found.waste if NOT_TRACKED in lines else 0)
        assert known > 0.7  # a class of which one slab or none is tracked
        for site in (2, 3, 4):
            line = lines[site]
            off[site, "shared"].append((line.shared - shared[site]) / line.shared_error)
            off[site, "sole"].append((line.sole - sole[site]) / line.sole_error)
    for found in off.values():
        assert sum(abs(each) <= 2 for each in found) >= 0.93 * runs
        assert abs(sum(found) / runs) < 0.35  # of a standard error
        assert math.sqrt(sum(each * each for each in found) / runs) > 0.5  # nor are they told too large


# ---- The constructed case ----

SLABS = 16_384
SIZE = 64
PERCENT = {2: 60, 3: 30, 4: 10}


def constructed(every: int, seed: int) -> Snapshot:
    """1 GiB of slabs of which one block each was left, by three sites."""
    draw = random.Random(seed)
    sites = [site for site, percent in PERCENT.items() for _ in range(SLABS * percent // 100)]
    sites += [2] * (SLABS - len(sites))
    tracked = [
        TrackedSlab(UNIT * number, SIZE, 0, 1, PAGE - SIZE, 1, [Survivor(0, site, 1.0, False)])
        for number, site in enumerate(sites)
        if draw.randrange(every) == 0
    ]
    whole = Stratum(SIZE, 0, SLABS, len(tracked), SLABS, SLABS * (PAGE - SIZE), 0)
    return Snapshot(page_size=PAGE, strata=[whole], tracked=tracked)


# Mean and 95th percentile of the relative error of each site, in percent.
@pytest.mark.parametrize(
    ("every", "want"),
    [
        (64, {2: (4, 11), 3: (8, 17), 4: (16, 37)}),
        (128, {2: (6, 13), 3: (10, 26), 4: (21, 51)}),
        (256, {2: (8, 20), 3: (16, 40), 4: (28, 72)}),
    ],
)
def test_errors_of_the_constructed_case(every, want):
    runs = 400
    errors: dict[int, list[float]] = {site: [] for site in PERCENT}
    within = 0
    for seed in range(runs):
        found = estimate(constructed(every, seed))
        assert sum(line.shared for line in found.lines) == SLABS * (PAGE - SIZE)
        lines = {line.key: line for line in found.lines}
        for site, percent in PERCENT.items():
            true = SLABS * percent / 100 * (PAGE - SIZE)
            line = lines.get(site)
            errors[site].append(100 * abs((line.sole if line else 0) - true) / true)
            within += line is not None and abs(line.sole - true) <= 2 * line.sole_error
            assert line is None or line.sole == pytest.approx(line.shared, abs=1)
    for site, (mean, percentile) in want.items():
        found = sorted(errors[site])
        assert sum(found) / runs == pytest.approx(mean, rel=0.25, abs=1)
        assert found[int(0.95 * runs)] == pytest.approx(percentile, rel=0.25)
    assert within >= 0.92 * 3 * runs


# ---- What could lie apart ----

LASTS, PASSES, MIXED = 2, 3, 4


def beside(slabs: int, every: int = 1, seed: int = 0, age: float = 60.0) -> Snapshot:
    """One block of each slab is live: by turns a lasting site's beside passing ones, a mixed one's beside its own and beside passing ones,
    and a lasting site's beside a mixed one's."""
    taken, draw = Snapshot(page_size=PAGE), random.Random(seed)
    for number in range(slabs):
        owner, other = ((LASTS, PASSES), (MIXED, MIXED), (MIXED, PASSES), (LASTS, MIXED))[number % 4]
        slab = TrackedSlab(UNIT * number, SIZE, 0, 1, PAGE - SIZE, 1, [Survivor(0, owner, age, False)])
        slab.freed = [Freed(0, other, 1 if other == MIXED else 63)]
        if draw.randrange(every) == 0:
            taken.tracked.append(slab)
    taken.strata = [Stratum(SIZE, 0, slabs, len(taken.tracked), slabs, slabs * (PAGE - SIZE), 0)]
    return taken


def test_separable_is_what_lasting_sites_keep_beside_passing_ones():
    found = estimate(beside(400))
    assert (found.separable, found.separable_error) == (100 * (PAGE - SIZE), 0)
    within = 0
    for seed in range(200):
        found = estimate(beside(4000, every=10, seed=seed))
        within += abs(found.separable - 1000 * (PAGE - SIZE)) <= 2 * found.separable_error
        assert 0 < found.separable_error < 0.3 * found.separable
    assert 0.92 * 200 <= within


def test_what_is_not_known_is_not_separable():
    young = beside(300, age=9.9)
    assert estimate(young).separable is None
    nameless = beside(300)
    for slab in nameless.tracked:
        for each in slab.freed:
            each.site = 0 if each.site == PASSES else each.site
    assert estimate(nameless).separable == 0
    alone = beside(300)
    for slab in alone.tracked:
        slab.freed = [each for each in slab.freed if each.site == MIXED]
    assert estimate(alone).separable == 0
    few = beside(24)  # eight blocks of the lasting one in all
    assert estimate(few).separable != 0
    del few.tracked[14:]
    few.strata[0].tracked = len(few.tracked)
    assert not estimate(few).separable


# ---- Little ----


def test_with_too_few_tracked_slabs_nothing_is_said():
    taken = constructed(1, 0)
    del taken.tracked[TOO_FEW - 1 :]
    taken.strata[0].tracked = len(taken.tracked)
    found = estimate(taken)
    assert found.too_small
    assert [(line.key, line.shared) for line in found.lines] == [(NOT_TRACKED, found.waste)]


def test_class_with_one_tracked_slab_of_several_is_not_known():
    taken = constructed(128, 1)
    taken.strata.append(Stratum(128, 0, 100, 1, 100, 100 * (PAGE - 128), 0))
    taken.tracked.append(TrackedSlab(1 << 40, 128, 0, 1, PAGE - 128, 1, [Survivor(0, 9, 1.0, False)]))
    lines = {line.key: line for line in estimate(taken).lines}
    assert lines[NOT_TRACKED].shared == 100 * (PAGE - 128)
    assert 9 not in lines


def test_site_that_all_tracked_slabs_belong_to_is_not_certain_to_have_the_others():
    taken = constructed(128, 1)
    taken.strata.append(Stratum(128, 0, 100, 1, 100, 100 * (PAGE - 128), 0))
    for slab in range(1, 11):
        taken.tracked.append(TrackedSlab(slab << 40, 128, 0, 1, PAGE - 128, 1, [Survivor(0, 9, 1.0, False)]))
    line = next(line for line in estimate(taken).lines if line.key == 9)
    assert line.shared == 100 * (PAGE - 128)
    assert 0.01 < line.shared_error / line.shared < 0.1
    assert line.sole_error == line.shared_error


def test_quarters_with_few_tracked_slabs_are_taken_with_their_neighbours():
    taken = constructed(128, 1)
    taken.strata.append(Stratum(SIZE, 1, 3, 1, 30, 30 * PAGE // 2, 0))
    survivors = [Survivor(number, 9, 1.0, False) for number in range(32)]
    taken.tracked.append(TrackedSlab(1 << 40, SIZE, 1, 300, PAGE // 2, 1, survivors))
    lines = {line.key: line for line in estimate(taken).lines}
    assert NOT_TRACKED not in lines
    assert lines[9].shared > 0
    assert lines[9].shared_error > 0


# ---- The command ----


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "heap"
    path.write_text(text_of(pin(HEAP.sampled(3), HEAP, every=3)))
    return str(path)


def test_second_table_tells_who_keeps_pages(hakmem, file):
    result = hakmem("profile", file)
    assert result.returncode == 0
    text = re.sub(r"\s+", " ", result.stdout)
    assert re.search(r"pinned [\d.]+ (K|M)iB: free, but on [\d,]+ pages of 4\.0 KiB that live blocks keep", text)
    assert re.search(r"free pages in the same slabs, .*: at most [\d.]+ (K|M)iB", text)
    assert re.search(r"\d+ of \d+ slabs tracked ", text)
    assert "pinned ± share sole ± youngest oldest kept by blocks allocated by" in text


def test_json_has_all_lines_and_they_sum(hakmem, file):
    result = json.loads(hakmem("profile", file, "--json", "--by", "function").stdout)["pinned"]
    assert sum(line["shared"] for line in result["lines"]) == result["bytes"]
    keys = {"shared", "shared_error", "sole", "sole_error", "slabs", "youngest", "oldest", "frames", "wanted_by"}
    assert set(result["lines"][0]) == keys
    assert result["too_small"] is False
    assert result["separable"] is None  # all are young


def test_what_is_not_tracked_has_no_figures_but_its_share_in_json(hakmem, tmp_path):
    taken = pin(HEAP.sampled(3), HEAP, every=10_000)
    file = tmp_path / "heap"
    file.write_text(text_of(taken))
    (line,) = json.loads(hakmem("profile", str(file), "--json").stdout)["pinned"]["lines"]
    assert line["frames"] == [{"function": NOT_TRACKED}] and line["shared"] > 0
    assert (line["shared_error"], line["sole"], line["sole_error"]) == (None, None, None)


def test_functions_are_told_where_all_blocks_of_a_site_are_freed():
    taken = pin(HEAP.sampled(3), HEAP, every=3)
    taken.sites[999] = (0, 0x999000)
    for slab in taken.tracked:
        slab.freed.append(Freed(0, 999, 5))
    rows, _ = insight.pinned_rows(taken, Symbols(taken), insight.FUNCTION)
    assert rows


def test_small_heap_is_said_to_be_too_small(hakmem, tmp_path):
    taken = pin(HEAP.sampled(3), HEAP, every=10_000)
    file = tmp_path / "heap"
    file.write_text(text_of(taken))
    assert "too few to tell who keeps it" in hakmem("profile", str(file)).stdout


def test_by_tag_there_is_no_second_table(hakmem, file):
    result = hakmem("profile", file, "--by", "tag")
    assert result.returncode == 0
    assert "slabs tracked" not in result.stdout
    assert json.loads(hakmem("profile", file, "--by", "tag", "--json").stdout)["pinned"] is None

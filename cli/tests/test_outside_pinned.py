"""Who keeps pages, read from outside: at rest what the process itself says, to the byte, and in motion nothing impossible."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from processes import compiled, running
from test_outside import cored

from hakmem import outside, snapshot
from hakmem.memory import Process
from hakmem.pinned import estimate
from hakmem.snapshot import Snapshot, TrackedSlab

_AGE = 0.3  # seconds that clocks may differ by
_READS = int(os.environ.get("HAKMEM_TEST_READS", "1000")) // 10


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("known"))


def ageless(slabs: list[TrackedSlab]) -> list[TrackedSlab]:
    return [replace(slab, survivors=[replace(each, age=0.0) for each in slab.survivors]) for slab in slabs]


def lines_of(taken: Snapshot) -> list[tuple]:
    return [
        (line.key, line.shared, line.sole, line.shared_error, line.sole_error, line.slabs)
        for line in estimate(taken).lines
    ]


def same(seen: Snapshot, written: Snapshot, latest: float = 60) -> None:
    assert seen.page_size == written.page_size
    assert seen.strata == written.strata
    assert ageless(seen.tracked) == ageless(written.tracked)
    assert lines_of(seen) == lines_of(written)
    assert seen.moving == 0
    for one, other in zip(seen.tracked, written.tracked, strict=True):
        for survivor, known in zip(one.survivors, other.survivors, strict=True):
            assert -_AGE <= survivor.age - known.age < latest


@pytest.mark.parametrize(("track", "sample"), [("1", "128"), ("5", "512"), ("0", "128")])
def test_process_and_core_are_what_the_process_says(program, tmp_path, track, sample):
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK=track, HAKMEM_SAMPLE_KB=sample) as process:
        written, reader = snapshot.read(str(file)), outside.Reader(Process(process.pid))
        holes = reader.heap().units["holes"]
        seen, core = outside.read(reader.memory), outside.read(cored(process.pid, tmp_path))
    same(seen, written)
    same(core, written)
    assert holes.any() and any(each.idle for each in written.strata)
    assert bool(written.tracked) == (track != "0")
    if track == "1":
        survivors = [each for slab in written.tracked for each in slab.survivors]
        assert any(each.quiet for each in survivors)
        assert len({each.site for each in survivors}) > 2


def test_what_was_saved_is_read_as_it_was(hakmem, program, tmp_path):
    file, saved = tmp_path / "heap", tmp_path / "saved"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="2") as process:
        assert hakmem("profile", str(process.pid), "--save", str(saved)).returncode == 0
        page = hakmem("profile", str(process.pid), "--html", str(tmp_path / "page"))
    same(snapshot.read(str(saved)), snapshot.read(str(file)))
    assert page.returncode == 0 and "slabs tracked" in (tmp_path / "page").read_text()


def test_older_libraries_do_not_tell_it(program, tmp_path):
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="1") as process:
        reader = outside.Reader(Process(process.pid))
        reader.tells_pinned = False
        taken = reader.snapshot(pinned=True)
    assert taken.classes and (taken.page_size, taken.strata, taken.tracked) == (0, [], [])


# ---- In motion ----


class Torn(Process):
    """Of so many looks that have live bits, these are all set, and the first record is another one's."""

    turns = 0

    def gather(self, addresses, sizes):
        found = super().gather(addresses, sizes)
        if sizes[0] == 64 and sizes[1] % 512 == 0 and Torn.turns:
            Torn.turns -= 1
            found[:, : sizes[0]] ^= 1
            found[:, sizes[0] : sizes[0] + sizes[1]] = 255
        return found


def possible(taken: Snapshot, reader: outside.Reader, oldest: float = 600) -> None:
    page, blocks = taken.page_size, {each.size: each for each in reader.classes if each.size}
    found = estimate(taken)
    assert sum(line.shared for line in found.lines) == found.waste
    for each in taken.strata:
        size = blocks[each.block_size]
        most = each.slabs * -(-size.blocks * size.size // page)
        assert 0 < each.slabs and 0 <= each.tracked <= each.slabs and 0 <= each.quarter < 4
        assert 0 < each.pages <= most
        assert 0 <= each.waste < each.pages * page
        assert 0 <= each.idle <= (most - each.pages) * page
    assert len(taken.tracked) == sum(each.tracked for each in taken.strata)
    for slab in taken.tracked:
        size = blocks[slab.block_size]
        assert 0 < slab.live <= size.blocks and slab.quarter == (4 * slab.live - 1) // size.blocks
        left = {number: page for number in range(64) if slab.pages >> number & 1}
        for each in slab.survivors:
            assert 0 <= each.block < size.blocks and 0 <= each.age < oldest
            assert each.site == 0 or each.site in taken.sites
            start, end = each.block * size.size, (each.block + 1) * size.size
            for number in range(start // page, (end - 1) // page + 1):
                if number in left:
                    left[number] -= min(end, (number + 1) * page) - max(start, number * page)
        assert all(0 < waste < page for waste in left.values())
        assert sum(left.values()) == slab.waste
        assert len({each.block for each in slab.survivors}) == len(slab.survivors) <= slab.live


def test_what_changes_while_it_is_read_is_read_again_and_then_a_possible_slab(program, tmp_path):
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="3") as process:
        written, memory = snapshot.read(str(file)), Torn(process.pid)
        Torn.turns = 1
        same(outside.read(memory), written)
        assert Torn.turns == 0
        Torn.turns = 100_000
        seen = outside.read(memory)
        Torn.turns = 0
        possible(seen, outside.Reader(memory), math.inf)  # blocks that never were live have records of no time
    assert 0 < seen.moving <= seen.slabs
    assert seen.strata != written.strata


def test_a_churning_process_has_no_impossible_figure(program):
    moving = slabs = tracked = survivors = 0
    with running(program, "churn", HAKMEM_TRACK="3") as process:
        reader = outside.Reader(Process(process.pid))
        for _ in range(_READS):
            taken = reader.snapshot(pinned=True)
            possible(taken, reader)
            moving, slabs = moving + taken.moving, slabs + taken.slabs
            tracked = max(tracked, len(taken.tracked))
            survivors = max(survivors, max((len(slab.survivors) for slab in taken.tracked), default=0))
    print(f"{_READS} readings, {100 * moving / slabs:.4f} % of slabs moving")
    assert moving < 0.02 * slabs
    assert tracked > 100 and survivors > 10

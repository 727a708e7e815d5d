"""Who keeps pages, read from outside: at rest what the process itself says, to the byte, and in motion nothing impossible."""

from __future__ import annotations

import math
import os
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from processes import compiled, running
from test_outside import cored

from hakmem import outside, snapshots
from hakmem.memory import Process
from hakmem.pinned import estimate
from hakmem.snapshots import Snapshot, TrackedSlab

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
    for one, other in zip(seen.tracked, written.tracked):
        for survivor, known in zip(one.survivors, other.survivors):
            assert -_AGE <= survivor.age - known.age < latest


@pytest.mark.parametrize(("track", "sample"), [("1", "128"), ("5", "512"), ("0", "128")])
def test_process_and_core_are_what_the_process_says(program, tmp_path, track, sample):
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK=track, HAKMEM_SAMPLE_KB=sample) as process:
        written, reader = snapshots.read(str(file)), outside.Reader(Process(process.pid))
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
        assert sum(each.blocks for slab in written.tracked for each in slab.freed) > 1000


def test_what_was_saved_is_read_as_it_was(hakmem, program, tmp_path):
    file, saved = tmp_path / "heap", tmp_path / "saved"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="2") as process:
        assert hakmem("profile", str(process.pid), "--save", str(saved)).returncode == 0
        page = hakmem("profile", str(process.pid), "--html", str(tmp_path / "page"))
    same(snapshots.read(str(saved)), snapshots.read(str(file)))
    assert page.returncode == 0 and "slabs tracked" in (tmp_path / "page").read_text()


def test_what_lasts_beside_what_does_not_is_separable(hakmem, program):
    with running(program, "apart", HAKMEM_TRACK="2") as process:
        young = outside.read(Process(process.pid))
    found = estimate(young)
    assert found.separable is None  # nothing is old enough
    for slab in young.tracked:
        slab.survivors = [replace(each, age=each.age + 60) for each in slab.survivors]
    found = estimate(young)
    assert 0.9 * found.waste < found.separable <= found.waste
    assert found.separable > 6 << 20


def test_older_libraries_do_not_tell_it(program, tmp_path):
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="1") as process:
        reader = outside.Reader(Process(process.pid))
        reader.tells_pinned = False
        taken = reader.snapshot(pinned=True)
    assert taken.classes and (taken.page_size, taken.strata, taken.tracked) == (0, [], [])


def test_a_tracked_block_that_is_sampled_too_is_as_its_sample_says(program, tmp_path):
    """Made quiet, as one would be that came and went often."""
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="1") as process:
        written, reader = snapshots.read(str(file)), outside.Reader(Process(process.pid))
        sampled = {each.address for each in written.samples if not each.quiet}
        found = (
            (slab, each)
            for slab in written.tracked
            for each in slab.survivors
            if slab.address + each.block * slab.block_size in sampled
        )
        slab, survivor = next(found)
        address = slab.address + survivor.block * slab.block_size
        unit, offset = divmod(address - reader.base, reader.unit_bytes)
        state = int(reader.records_at("samples", np.array([unit]))[0, 0]) + reader.names.field("sample.state")[0]
        word = reader.names.number(state, 4) - reader.value("sample.live") + reader.value("sample.quiet")
        reader.memory.write(state, word.to_bytes(4, "little"))
        live, stride, _ = reader.names.zone("live")
        bit = offset // reader.value("granule.bytes")
        place = live + unit * stride + bit // 8
        reader.memory.write(place, bytes([reader.names.number(place, 1) | 1 << bit % 8]))
        seen = reader.snapshot(pinned=True)
    survivor.quiet = True
    same(seen, written)


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
        for each in slab.freed:
            assert slab.pages >> each.page & 1 and 0 < each.blocks <= page // size.size + 2
            assert each.site == 0 or each.site in taken.sites
        assert all(0 < waste < page for waste in left.values())
        assert sum(left.values()) == slab.waste
        assert len({each.block for each in slab.survivors}) == len(slab.survivors) <= slab.live


def test_what_changes_while_it_is_read_is_read_again_and_then_a_possible_slab(program, tmp_path):
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="3") as process:
        written, memory = snapshots.read(str(file)), Torn(process.pid)
        Torn.turns = 1
        same(outside.read(memory), written)
        assert Torn.turns == 0
        Torn.turns = 100_000
        seen = outside.read(memory)
        Torn.turns = 0
        possible(seen, outside.Reader(memory), math.inf)  # blocks that never were live have records of no time
    assert 0 < seen.moving <= seen.slabs
    assert seen.strata != written.strata
    assert sum(each.slabs for each in seen.strata) >= sum(each.slabs for each in written.strata)


def test_live_bits_of_blocks_that_are_free_or_wait_say_nothing(program, tmp_path):
    """A plain store may have brought them back."""
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="2") as process:
        written, reader = snapshots.read(str(file)), outside.Reader(Process(process.pid))
        heap, (live, stride, _) = reader.heap(), reader.names.zone("live")
        granule, set_of = reader.value("granule.bytes"), [0, 0]
        for slab in heap.slabs.tolist():
            size = reader.classes[heap.units[slab]["size_class"]]
            for kind, bits in enumerate((heap.free_bits, heap.remote_bits) if size.size else ()):
                words = heap.words(bits, np.array([slab]), -(-size.blocks // 64))[0].tolist()
                for block in (number for number in range(size.blocks) if words[number // 64] >> number % 64 & 1):
                    bit = block * (size.size // granule)
                    place = live + slab * stride + bit // 8
                    reader.memory.write(place, bytes([reader.names.number(place, 1) | 1 << bit % 8]))
                    set_of[kind] += 1
                    if set_of[kind] % 20 == 0:
                        break
        seen = reader.snapshot(pinned=True)
    assert min(set_of) > 100
    same(seen, written)


def test_a_churning_process_has_no_impossible_figure(program):
    moving = []  # the share of slabs in each reading: it says how long the reader waited for a processor between two looks
    tracked = survivors = 0
    with running(program, "churn", HAKMEM_TRACK="3") as process:
        reader = outside.Reader(Process(process.pid))
        for _ in range(_READS):
            taken = reader.snapshot(pinned=True)
            possible(taken, reader)
            moving.append(taken.moving / taken.slabs)
            tracked = max(tracked, len(taken.tracked))
            survivors = max(survivors, max((len(slab.survivors) for slab in taken.tracked), default=0))
    print(f"{_READS} readings, in the median {100 * statistics.median(moving):.4f} % of slabs moving")
    assert min(moving) < 0.02  # one reading that did not wait
    assert tracked > 100 and survivors > 10

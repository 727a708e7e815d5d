"""What live blocks keep of pages, from outside: the rows that src/entry/pinned.c writes, from the same words and by the rules of
src/slab/pinned.c. hakmem.pinned finds out from them who keeps the pages.

A single reading of each slab has all the data of its row, with the slab's record before and after it; if these differ, it is repeated, as
in outside.py. A row rests on one set of live blocks, so a change meanwhile makes it that of another possible slab, not an impossible one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hakmem import plausible
from hakmem.pages import of_bits
from hakmem.snapshots import Freed, Stratum, Survivor, TrackedSlab, age_of

if TYPE_CHECKING:
    from hakmem.outside import Heap, Look, Reader

_TRIES = 3
_QUARTERS = 4
_BLOCKS_AT_ONCE = 1 << 21
_FIELDS = ("kind", "size_class", "free", "units", "holes", "tracked")
_SAMPLE = ["state", "place", "site", "born"]
_RECORDS_MOST = 1 << 12  # in a slab
_FREED_SITES = 64  # in a page, as in src/entry/pinned.c
_CHUNKS_MOST = 1 << 20


def _bits(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The bits with these numbers in each row of bytes."""
    return (data[:, places >> 3] >> (places & 7).astype(np.uint8) & 1).astype(bool)


class _Kept:
    def __init__(self, reader: Reader, heap: Heap) -> None:
        self.reader = reader
        self.value = value = reader.value
        self.page = plausible.page_size(reader.memory.name, reader.names.word("page_bytes"))
        self.base, self.now = heap.base, reader.now(heap) // value("sample.clock_ms")
        self.samples = reader.names.record("sample", _SAMPLE) if reader.rate() else None
        # By class and quarter: slabs, tracked ones, pages, waste, idle.
        self.counts = np.zeros((len(reader.classes) * _QUARTERS, 5), np.int64)
        self.tracked: list[TrackedSlab] = []

    # ---- one reading ----

    def shapes(self, units: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Groups slabs that are read alike: by class, number of block records, and the bits that show waiting blocks."""
        orders = (records["tracked"] & np.uint64(self.value("track.order_mask"))).astype(np.int64)
        tracked = (records["tracked"] != 0) & (1 << np.minimum(orders, 62) <= _RECORDS_MOST)
        waits = self.reader.shape_of(self.reader.freers[units])
        classes = records["size_class"].astype(np.int64)
        return (classes * 64 + np.where(tracked, orders + 1, 0)) * 4 + waits

    def take(self, units: np.ndarray, records: np.ndarray, last: bool) -> np.ndarray:
        """Takes the slabs that did not change or, at the last try, all that are usable. Returns those left, and updates their records."""
        shapes = self.shapes(units, records)
        left = []
        for shape in np.unique(shapes).tolist():
            places = np.flatnonzero(shapes == shape)
            step = max(1, _BLOCKS_AT_ONCE // int(self.reader.blocks[shape // 256]))
            for first in range(0, len(places), step):
                part = places[first : first + step]
                left.append(part[self._take(units[part], records, part, shape, last)])
        return np.sort(np.concatenate(left)) if left else np.zeros(0, np.int64)

    def _take(self, units: np.ndarray, records: np.ndarray, part: np.ndarray, shape: int, last: bool) -> np.ndarray:
        reader, (number, orders, waits) = self.reader, (shape // 256, shape // 4 % 64, shape % 4)
        tracked, each = records["tracked"][part], reader.classes[number]
        stride = reader.names.zone("live")[1]
        more = [(reader.records_at("live", units)[:, 0], stride * each.units)]
        if self.samples is not None:
            more.append((reader.records_at("samples", units)[:, 0], self.samples.itemsize * each.units))
        if orders:
            start = tracked & ~np.uint64(self.value("track.order_mask"))
            more.append((start, reader.names.field("track")[1] << orders - 1))
        classes = np.full(len(units), number)
        look = reader.look(units, classes, int(reader.groups_of(classes[:1])[0]), waits, more)
        after = look.after
        still = reader.is_slab(after) & (after["size_class"] == number) & (after["tracked"] == tracked)
        same = still & (look.counted == after["free"])
        for name in _FIELDS:
            same &= look.before[name] == after[name]
        told = still if last else same
        if told.any():
            self._add(units[told], number, _Blocks(self, look, told, number, orders))
        records[part] = after
        return reader.is_slab(after) & (after["size_class"] < reader.zero_class) & ~same

    # ---- rows ----

    def _add(self, units: np.ndarray, number: int, blocks: _Blocks) -> None:
        each, page = self.reader.classes[number], self.page
        count = blocks.live.sum(axis=1)
        pages = -(-each.blocks * each.size // page)
        held = of_bits(np.packbits(blocks.live, axis=1, bitorder="little"), each.blocks, each.size, pages, page)
        kept, holes = held > 0, blocks.holes[:, None] >> np.arange(pages, dtype=np.uint64) & np.uint64(1) != 0
        waste, wasteful = ((page - held) * kept).sum(axis=1), kept & (held < page)
        idle = page * (~kept & ~holes).sum(axis=1)
        quarters = (count * _QUARTERS - 1) // each.blocks
        columns = (np.ones_like(count), np.full_like(count, blocks.tracks is not None), kept.sum(axis=1), waste, idle)
        some = count > 0
        np.add.at(self.counts, number * _QUARTERS + quarters[some], np.stack(columns, axis=1)[some])
        if blocks.tracks is None:
            return
        starts, before = np.arange(each.blocks) * each.size, np.zeros((len(units), pages + 1), np.int8)
        np.cumsum(wasteful, axis=1, out=before[:, 1:])  # the number of pages with waste before each page
        survives = blocks.live & (before[:, (starts + each.size - 1) // page + 1] > before[:, starts // page])
        masks = (wasteful.astype(np.uint64) << np.arange(pages, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
        for row in np.flatnonzero(some).tolist():
            address = self.base + int(units[row]) * self.reader.unit_bytes
            slab = TrackedSlab(address, each.size, int(quarters[row]), int(count[row]), int(waste[row]), int(masks[row]))
            slab.survivors = blocks.survivors(row, np.flatnonzero(survives[row]), self.now)
            slab.freed = blocks.freed(row, np.flatnonzero(wasteful[row]), page)
            self.tracked.append(slab)

    def strata(self) -> list[Stratum]:
        sizes = [each.size for each in self.reader.classes]
        return [
            Stratum(sizes[row // _QUARTERS], row % _QUARTERS, *self.counts[row].tolist())
            for row in np.flatnonzero(self.counts[:, 0]).tolist()
        ]


class _Blocks:
    """The blocks of slabs of one class: which are live, and their records."""

    def __init__(self, kept: _Kept, look: Look, told: np.ndarray, number: int, orders: int) -> None:
        reader, value = kept.reader, kept.value
        each = reader.classes[number]
        more = [part[told] for part in look.more]
        self.value, self.size, self.holes = value, each.size, look.after["holes"][told]
        numbers = np.arange(each.blocks)
        words = np.ascontiguousarray((look.free | look.waits)[told]).reshape(len(more[0]), -1).view(np.uint8)
        # The live bit of a free or waiting block may be stale, restored by a plain store.
        self.live = _bits(more[0], numbers * (each.size // value("granule.bytes"))) & ~_bits(words, numbers)
        self.tracks = None
        if orders:
            self.tracks = np.ascontiguousarray(more[-1]).view(np.uint64)[:, numbers & (1 << orders - 1) - 1]
            self.live |= self._states(self.tracks) == value("track.live")
        self.samples, self.of_sample = None, None
        if kept.samples is not None:
            self.samples = np.ascontiguousarray(more[1]).view(kept.samples)
            units = np.arange(each.units) * reader.unit_bytes
            offsets = units + self.samples["place"].astype(np.int64) * value("granule.bytes")
            states = reader.state_of(self.samples)
            found = offsets // each.size
            rows, columns = np.nonzero((states == value("sample.live")) & (found < each.blocks))
            self.live[rows, found[rows, columns]] = True
            exact = (states != value("sample.none")) & (offsets % each.size == 0)
            self.of_sample, self.sample_states = np.where(exact, found, -1), states

    def _states(self, tracks: np.ndarray) -> np.ndarray:
        return tracks & np.uint64((1 << self.value("track.state_bits")) - 1)

    def freed(self, row: int, pages: np.ndarray, page_size: int) -> list[Freed]:
        """The last owners of a tracked slab's free blocks, except where the record may be an earlier block's."""
        words, states = self.tracks[row], self._states(self.tracks[row])
        known = (words != 0) & (states != self.value("track.live")) & (states != self.value("track.quiet"))
        sites, found = self._sites(words), []
        for page in pages.tolist():
            part = slice(page * page_size // self.size, ((page + 1) * page_size - 1) // self.size + 1)
            of, first, blocks = np.unique(sites[part][known[part]], return_index=True, return_counts=True)
            order = np.argsort(first)[:_FREED_SITES]
            found += [Freed(page, *each) for each in zip(of[order].tolist(), blocks[order].tolist())]
        return found

    def _sites(self, words: np.ndarray) -> np.ndarray:
        first, end = self.value("track.site_shift"), self.value("track.born_shift")
        return words >> np.uint64(first) & np.uint64((1 << end - first) - 1)

    def survivors(self, row: int, numbers: np.ndarray, now: int) -> list[Survivor]:
        """The survivors in a tracked slab. A block that is sampled by bytes has its record among the samples."""
        value, words = self.value, self.tracks[row, numbers]
        sites, born = self._sites(words), (words >> np.uint64(value("track.born_shift"))).astype(np.int64)
        quiet = self._states(words) == value("track.quiet")
        if self.samples is not None:
            for unit in range(self.of_sample.shape[1]):
                mine = numbers == self.of_sample[row, unit]
                sample = self.samples[row, unit]
                sites[mine], born[mine] = sample["site"], sample["born"]
                quiet[mine] = self.sample_states[row, unit] == value("sample.quiet")
        columns = (numbers.tolist(), sites.tolist(), born.tolist(), quiet.tolist())
        return [
            Survivor(number, site, age_of((now - at) % (1 << 32)), is_quiet)
            for number, site, at, is_quiet in zip(*columns)
        ]


def _chunks(reader: Reader) -> list[tuple[int, int]]:
    names, size = reader.names, reader.value("track.chunk_bytes")
    found: list[tuple[int, int]] = []
    address, seen = names.number(names.place("track.chunks")), set()
    while address and address not in seen and len(seen) < _CHUNKS_MOST:
        seen.add(address)
        found.append((address, address + size))
        address = names.number(address)
    return found


def records(reader: Reader, heap: Heap) -> list[tuple[int, int]]:
    """Where the records of tracked slabs lie, including those of slabs that have ended; for an older library, which does not show
    these, the pages of the current slabs' records."""
    if "track.chunks" in reader.names.places:
        return _chunks(reader)
    if not reader.tells_pinned:
        return []
    mask, page = np.uint64(reader.value("track.order_mask")), np.uint64(reader.memory.page_size)
    tracked = np.sort(heap.units["tracked"][heap.slabs])
    tracked = tracked[(tracked != 0) & (np.uint64(1) << np.minimum(tracked & mask, np.uint64(62)) <= _RECORDS_MOST)]
    sizes = np.uint64(reader.names.field("track")[1]) << (tracked & mask)
    first, last = (tracked & ~mask) // page, ((tracked & ~mask) + sizes - np.uint64(1)) // page
    apart = first[1:] > last[:-1] + np.uint64(1)
    some = np.full(min(1, len(tracked)), True)
    starts, ends = first[np.concatenate([some, apart])] * page, (last[np.concatenate([apart, some])] + np.uint64(1)) * page
    return list(zip(starts.tolist(), ends.tolist()))


def read(reader: Reader, heap: Heap) -> tuple[int, list[Stratum], list[TrackedSlab]]:
    """The page size and the rows; none for a library that does not show them, or has no reliable live bits."""
    if not reader.tells_pinned or not reader.value("library.checks"):
        return 0, [], []
    kept = _Kept(reader, heap)
    units = heap.slabs[heap.units["size_class"][heap.slabs] < reader.zero_class]
    records = heap.units[units]
    for turn in range(_TRIES):
        left = kept.take(units, records, turn == _TRIES - 1)
        units, records = units[left], records[left]
        if turn == _TRIES - 1 or not len(units):
            break
    heap.unsteady = np.union1d(heap.unsteady, units)
    kept.tracked.sort(key=lambda slab: slab.address)
    return kept.page, kept.strata(), kept.tracked

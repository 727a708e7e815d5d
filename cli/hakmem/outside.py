"""A heap as seen from outside its process: counts, samples, and where each block is.

The process goes on while it is read. A slab's record is read before its bits and after them, and a sample's record
before its unit's and after it. If these differ, both are read again, up to three times; then a slab counts as moving, and
a sample is left out. No figure exceeds what there is room for, as in the allocator's own census (src/front/census.c).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from hakmem import descriptor, outside_events, outside_pinned, plausible
from hakmem.memory import Memory, whole
from hakmem.snapshots import Mapping, Sample, SizeClass, Snapshot

_TRIES = 3
_HEAPS_MOST = 1 << 20
_CLOCK_BITS = 1 << 32
_CERTAIN = 1 << 32
_ENTRIES_MOST = 1 << 20

_UNIT = ["kind", "size_class", "free", "head", "units", "bytes"]
_UNIT_PINNED = ["holes", "tracked"]  # older libraries don't have these
_SAMPLE = ["state", "place", "chance", "site", "tag", "asked", "born"]
_SUPERSLAB = ["free", "dirty", "cold"]
_HEAP = ["next", "last_tick_ms", "quarantine"]


@dataclass
class Class:
    """A size class: bytes of a block, 0 for malloc(0); bytes from one block to the next; units and blocks of a slab."""

    size: int
    step: int
    units: int
    blocks: int


@dataclass
class Bin:
    """A heap's free blocks of one class."""

    heap: int
    size_class: int
    count: int
    entries: np.ndarray  # addresses; empty unless requested


@dataclass
class Heap:
    """One reading of a heap."""

    base: int
    unit_bytes: int
    classes: list[Class]
    units: np.ndarray  # records of all units
    slabs: np.ndarray  # the numbers of slabs' first units
    waiting: np.ndarray  # for each slab: blocks freed by others and not collected
    superslabs: np.ndarray
    free_bits: np.ndarray  # [group of eight words, unit, word]
    remote_bits: np.ndarray  # the same for blocks that wait
    samples: np.ndarray
    span_of_sample: np.ndarray = field(
        default_factory=lambda: np.zeros(0)
    )  # the unit's record when the sample was read
    bins: list[Bin] = field(default_factory=list)
    quarantined: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))  # addresses
    heaps: list[int] = field(default_factory=list)
    heap_names: dict[int, str] = field(default_factory=dict)  # names of named heaps, by tag
    cached: list[int] = field(default_factory=list)  # blocks, by class
    unsteady: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # slabs that changed while they were read

    @property
    def moving(self) -> int:
        return len(self.unsteady)

    @property
    def size(self) -> int:
        return len(self.units) * self.unit_bytes

    def words(self, bits: np.ndarray, units: np.ndarray, words: int) -> np.ndarray:
        """The bits of these units, `words` words each."""
        groups = -(-words // bits.shape[2])
        rows = bits[:groups, units]
        return np.swapaxes(rows, 0, 1).reshape(len(units), -1)[:, :words]


@dataclass
class Look:
    """Slabs of one class in one reading: their records before and after it, and in between the bits of free and waiting blocks."""

    before: np.ndarray
    after: np.ndarray
    free: np.ndarray  # [slab, group of words, word]
    waits: np.ndarray  # without the free ones
    more: list[np.ndarray]  # what else was requested: bytes

    @property
    def counted(self) -> np.ndarray:
        return np.bitwise_count(self.free).sum(axis=(1, 2), dtype=np.int64)


class Reader:
    """Reads the heap of one process, as often as asked."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.names = names = descriptor.find(memory)
        self.value = names.value
        self.tells_pinned = all(f"unit.{name}" in names.fields for name in _UNIT_PINNED)
        self.unit_record = names.record("unit", _UNIT + _UNIT_PINNED * self.tells_pinned)
        self.unit_bytes = self.value("unit.bytes")
        self.per_superslab = self.value("superslab.units")
        zero = self.value("class.zero")
        self.classes = [
            Class(0 if number == zero else size, size, units, units * self.unit_bytes // size)
            for number, (size, units) in enumerate(names.classes)
        ]
        self.zero_class = zero
        self.secure = bool(self.value("library.secure"))
        self.base = names.word("region", "region.base")
        self.group_words = self.value("bits.group_words")
        self.blocks = np.array([each.blocks for each in self.classes], np.int64)
        self._waits = self.value("marks.seen"), self.value("marks.group_bytes"), self.value("bits.group_bytes")

    # ---- zones ----

    def zone(self, name: str, units: int, dtype: np.dtype) -> np.ndarray:
        address, stride, each = self.names.zone(name)
        return self.memory.read(address, -(-units // each) * stride).view(dtype)

    # ---- slabs ----

    def is_slab(self, records: np.ndarray) -> np.ndarray:
        return (records["kind"] == self.value("kind.slab")) & (records["size_class"] < len(self.classes))

    def _places(self, zone: str, units: np.ndarray, groups: int, group_bytes: int, behind: int = 0) -> np.ndarray:
        """The addresses of the units' groups of words in a bitmap."""
        address, stride, _ = self.names.zone(zone)
        superslab, within = np.divmod(units.astype(np.uint64)[:, None], np.uint64(self.per_superslab))
        start = np.uint64(address + behind) + superslab * np.uint64(stride) + within * np.uint64(8 * self.group_words)
        return start + np.arange(groups, dtype=np.uint64) * np.uint64(group_bytes)

    def records_at(self, zone: str, units: np.ndarray) -> np.ndarray:
        address, stride, _ = self.names.zone(zone)
        return np.uint64(address) + units.astype(np.uint64)[:, None] * np.uint64(stride)

    def _read_slabs(self) -> Heap:
        count = self.names.word("region", "region.units")
        records = self.zone("units", count, self.unit_record)
        superslabs = self.zone("superslabs", count, self.names.record("superslab", _SUPERSLAB))
        self.freers = self.zone("remotes", count, self.names.record("remote", ["freers"]))["freers"]
        slabs = np.flatnonzero(self.is_slab(records))
        waiting = np.zeros(count, np.int64)
        groups = int(-(-self.blocks[records["size_class"][slabs]].max(initial=0) // (64 * self.group_words)))
        free, waits = (np.zeros((groups, count, self.group_words), np.uint64) for _ in range(2))
        heap = Heap(
            self.base, self.unit_bytes, self.classes, records, slabs, waiting, superslabs, free, waits,
            np.zeros(0, self.names.record("sample", _SAMPLE)),
        )  # fmt: skip
        unsteady = slabs[(records["free"][slabs] != 0) | (self.freers[slabs] != 0)]
        for _ in range(_TRIES):
            unsteady = self._read_bits(heap, unsteady)
            if not len(unsteady):
                break
        heap.unsteady = unsteady
        heap.slabs = np.flatnonzero(self.is_slab(heap.units))
        heap.waiting = waiting[heap.slabs]
        return heap

    def _read_bits(self, heap: Heap, units: np.ndarray) -> np.ndarray:
        """Reads the slabs' records, bits, and records again; returns the slabs that changed in between."""
        groups = self.groups_of(heap.units["size_class"][units] % len(self.classes))
        shapes = groups * 4 + self.shape_of(self.freers[units])
        left = [self._read_shape(heap, units[shapes == shape], *divmod(int(shape), 4)) for shape in np.unique(shapes)]
        return np.concatenate(left) if left else units

    def groups_of(self, classes: np.ndarray) -> np.ndarray:
        """How many groups of words the bits of a slab's blocks take."""
        return -(-self.blocks[classes] // (64 * self.group_words))

    def shape_of(self, freers: np.ndarray) -> np.ndarray:
        """Which bits show waiting blocks: 2, remote ones; 1, marks as well."""
        marked = freers & ~np.uint64(self.value("remote.others")) != 0
        return (freers != 0) * 2 + marked

    def look(
        self, units: np.ndarray, classes: np.ndarray, groups: int, shape: int, more: list[tuple[np.ndarray, int]]
    ) -> Look:
        """Reads slabs once. `more` is further data: an address for each slab, and how many bytes to read there."""
        seen, marks_group, group = self._waits
        freed, marked = bool(shape & 2), bool(shape & 1)
        places = [each[:, None] for each, _ in more] + [self._places("free_bits", units, groups, group)]
        if freed:
            places.append(self._places("remote_bits", units, groups, group))
        if marked:
            places += [self._places("marks", units, groups, marks_group, behind) for behind in (0, seen)]
        record, row = self.unit_record.itemsize, 8 * self.group_words
        columns = sum(each.shape[1] for each in places) - len(more)
        sizes = [record, *(size for _, size in more), *[row] * columns, record]
        at_units = self.records_at("units", units)
        data = self.memory.gather(np.concatenate([at_units, *places, at_units], axis=1), sizes)
        parts = np.split(data, np.cumsum([record, *(size for _, size in more), row * columns]), axis=1)
        before, after = (np.ascontiguousarray(parts[at]).view(self.unit_record)[:, 0] for at in (0, -1))
        bits = np.ascontiguousarray(parts[-2]).view(np.uint64).reshape(len(units), -1, groups, self.group_words)
        free, waits = bits[:, 0], np.zeros_like(bits[:, 0])
        if freed:
            waits |= bits[:, 1]
        if marked:
            waits |= bits[:, -2] ^ bits[:, -1]
        words = -(-self.blocks[classes][:, None] // 64)
        used = (np.arange(groups * self.group_words) < words).reshape(free.shape)
        free *= used  # the bits beyond are from earlier slabs
        return Look(before, after, free, waits & ~free * used, parts[1:-2])

    def _read_shape(self, heap: Heap, units: np.ndarray, groups: int, shape: int) -> np.ndarray:
        classes = heap.units["size_class"][units] % len(self.classes)
        look = self.look(units, classes, groups, shape, [])
        after, waiting = look.after, np.bitwise_count(look.waits).sum(axis=(1, 2), dtype=np.int64)
        is_slab = self.is_slab(after)
        same = (
            self._same(look.before, after)
            & (after["size_class"] == heap.units["size_class"][units])
            & (look.counted == after["free"])
        )
        heap.units[units] = after
        room = np.maximum(self.blocks[classes] - after["free"], 0)
        heap.waiting[units] = np.where(is_slab, np.minimum(waiting, room), 0)
        missing = groups - len(heap.free_bits)
        if missing > 0:  # a slab now has smaller blocks than any had before
            rows = ((0, missing), (0, 0), (0, 0))
            heap.free_bits, heap.remote_bits = (np.pad(bits, rows) for bits in (heap.free_bits, heap.remote_bits))
        for bits_of, found in ((heap.free_bits, look.free), (heap.remote_bits, look.waits)):
            bits_of[:groups, units] = np.swapaxes(found, 0, 1) * is_slab[None, :, None]
        return units[is_slab & ~same]

    def _same(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.logical_and.reduce([one[name] == other[name] for name in ("kind", "size_class", "free", "units")])

    # ---- heaps ----

    def _read_bins(self, heap: Heap, with_entries: bool) -> None:
        names = self.names
        record = names.record("heap", _HEAP)
        has_bin, at_class = names.field("heap.has_bin")[0], names.field("heap.bin_at_class")[0]
        heap.cached = [0] * len(self.classes)
        address, seen = names.number(names.place("heaps")), set()
        waiting = []
        while address and address not in seen and len(seen) < _HEAPS_MOST:
            seen.add(address)
            data = self.memory.read(address, record.itemsize)
            head = data.view(record)[0]
            places = data[at_class : at_class + 2 * len(self.classes)].view(np.uint16)
            numbers = np.flatnonzero(data[has_bin : has_bin + len(self.classes)])
            at = np.uint64(address) + places[numbers].astype(np.uint64) * np.uint64(self.value("heap.word_bytes"))
            self._read_bins_of(heap, address, numbers, at, with_entries)
            if "heap.named" in names.fields:  # older libraries don't have this
                self._read_name(heap, data)
            if self.secure and head["quarantine"]:
                waiting.append(self._quarantine(heap, int(head["quarantine"])))
            address = int(head["next"])
        heap.heaps = list(seen)
        if waiting:
            heap.quarantined = np.concatenate(waiting)

    def _read_name(self, heap: Heap, data: np.ndarray) -> None:
        named, name, tag = (self.names.field(f"heap.{each}") for each in ("named", "name", "tag"))
        if data[named[0]]:
            text = data[name[0] : name[0] + name[1]].tobytes().split(b"\0")[0]
            heap.heap_names[int(data[tag[0] : tag[0] + 4].view(np.uint32)[0])] = text.decode("ascii", "replace")

    def _read_bins_of(
        self, heap: Heap, owner: int, numbers: np.ndarray, addresses: np.ndarray, with_entries: bool
    ) -> None:
        names = self.names
        data = self.memory.gather(addresses[:, None], [names.field("bin")[1]])

        def words(name: str, kind: type) -> np.ndarray:
            at, size = names.field(name)
            return np.ascontiguousarray(data[:, at : at + size]).view(kind)[:, 0].astype(np.int64)

        capacities, bits, gone = words("bin.capacity", np.int64), self.value("entry.sampled"), np.zeros(len(data), np.int64)
        if "bin.gone" in names.fields:  # older libraries don't have this
            bits, gone = bits | self.value("entry.bar"), words("bin.gone", np.uint16)
        counts = np.maximum(0, words("bin.top", np.int64) + capacities - gone)
        steady = counts <= np.minimum(capacities, _ENTRIES_MOST)  # otherwise the two words are from different moments
        lowest = addresses - np.uint64(8) * (capacities - gone).astype(np.uint64)
        for number, count, at in zip(numbers[steady].tolist(), counts[steady].tolist(), lowest[steady].tolist()):
            entries = np.zeros(0, np.uint64)
            if with_entries and count:
                entries = self.memory.read(at, 8 * count).view(np.uint64) & ~np.uint64(bits)
            heap.bins.append(Bin(owner, number, count, entries))
            heap.cached[number] += count

    def _quarantine(self, heap: Heap, address: int) -> np.ndarray:
        at, size = self.names.field("quarantine.blocks")
        blocks = self.memory.read(address + at, size).view(np.uint64).reshape(len(self.classes), -1) & ~np.uint64(1)
        for number, count in enumerate(np.count_nonzero(blocks, axis=1).tolist()):
            heap.cached[number] += count
        return blocks[blocks != 0]

    # ---- samples ----

    def rate(self) -> int:
        return self.names.word("sample.rate")

    def _read_samples(self, heap: Heap) -> None:
        """A record that is the same before and after its unit's record belongs to it: while the block is live, the span stays."""
        record = self.names.record("sample", _SAMPLE)
        heap.samples = self.zone("samples", len(heap.units), record)
        units = np.flatnonzero(self.state_of(heap.samples) > self.value("sample.free"))
        for _ in range(_TRIES):
            places = [self.records_at(zone, units) for zone in ("samples", "units", "samples")]
            at, end = record.itemsize, record.itemsize + self.unit_record.itemsize
            data = self.memory.gather(np.concatenate(places, axis=1), [at, end - at, at])
            first, unit, again = (
                np.ascontiguousarray(part).view(kind)[:, 0]
                for part, kind in ((data[:, :at], record), (data[:, at:end], self.unit_record), (data[:, end:], record))
            )
            heap.samples[units] = again
            heap.span_of_sample[units] = unit
            units = units[np.logical_or.reduce([first[name] != again[name] for name in _SAMPLE])]
        heap.samples["state"][units] = self.value("sample.none")

    def state_of(self, samples: np.ndarray) -> np.ndarray:
        return samples["state"] & np.uint32((1 << self.value("sample.state_bits")) - 1)

    def _is_live(self, address: int) -> bool:
        zone, stride, _ = self.names.zone("live")
        granule = (address - self.base) // self.value("granule.bytes")
        return bool(self.names.number(zone + granule // 64 * 8) >> granule % 64 & 1)

    def _samples(self, heap: Heap, now: int) -> list[Sample]:
        quiet = self.value("sample.quiet")
        units = np.flatnonzero(self.state_of(heap.samples) > self.value("sample.free"))
        records, spans = heap.samples[units], heap.span_of_sample[units]
        quietly = self.state_of(records) == quiet
        places = records["place"].astype(np.int64) * self.value("granule.bytes")
        addresses = heap.base + units * self.unit_bytes + places
        in_slab = np.isin(spans["kind"], (self.value("kind.slab"), self.value("kind.inside")))
        sizes = np.zeros(len(self.classes) + 256, np.int64)  # 0 for numbers that are not a class
        sizes[: len(self.classes)] = [each.size for each in self.classes]
        size = np.where(in_slab, sizes[spans["size_class"]], 0)
        is_large = spans["kind"] == self.value("kind.large")
        size[is_large] = spans["bytes"][is_large]
        for index in np.flatnonzero(quietly & in_slab).tolist():
            size[index] *= self._is_live(int(addresses[index]))
        clock = self.value("sample.clock_ms")
        age = (now // clock - records["born"].astype(np.int64)) % _CLOCK_BITS
        seconds = np.where(age < _CLOCK_BITS // 2, age, 0) * clock / 1000
        share = np.where(records["chance"] == 0, 1.0, records["chance"] / _CERTAIN)
        columns = (addresses, size, records["asked"], share, records["site"], records["tag"], seconds, quietly, is_large)
        return [Sample(*row) for row in zip(*(column[size > 0].tolist() for column in columns))]

    def now(self, heap: Heap) -> int:
        """The current time; for a core, the newest time found in it."""
        now = self.memory.now_ms()
        if now is not None:
            return now
        live = heap.samples[self.state_of(heap.samples) != self.value("sample.none")]
        born = int(live["born"].max(initial=0)) * self.value("sample.clock_ms")
        at, size = self.names.field("heap.last_tick_ms")
        ticks = [self.names.number(address + at, size) for address in heap.heaps]
        return max([born, self.names.number(self.names.place("purge.last_step_ms")), *ticks])

    def _sites(self) -> dict[int, tuple[int, int]]:
        number, chunk = self.names.number, self.value("site.chunk")
        count = min(number(self.names.place("site.count"), 4), self.value("site.most"))
        record, found = self.names.record("site", ["address", "parent"]), {}
        for first in range(0, count, chunk):
            address = number(self.names.place("site.chunks") + 8 * (first // chunk))
            if not address:
                continue
            sites = self.memory.read(address, min(chunk, count - first) * record.itemsize).view(record)
            for index in np.flatnonzero(sites["address"]).tolist():
                found[first + index] = (int(sites[index]["parent"]), int(sites[index]["address"]))
        found.pop(0, None)
        return found

    def knows_stacks(self) -> bool:
        """Whether it records the callers of what it counts: if samples are off, only after hak_profile_arm."""
        return self.rate() != 0 or bool(self._sites())

    def _closed(self) -> list[Mapping]:
        """Code that dlclose has unloaded, at the new addresses of its sites. In an older library, other code may have its addresses now."""
        if "closed.count" not in self.names.places:
            return []
        number, place = self.names.number, self.names.place
        count, address = min(number(place("closed.count"), 4), self.value("closed.most")), number(place("closed.codes"))
        size = self.names.field("code")[1]
        codes = self.memory.read(address, count * size).tobytes() if count and address else b""
        return [self._code(codes[at : at + size]) for at in range(0, len(codes), size)]

    def _code(self, record: bytes) -> Mapping:
        def bytes_of(name: str) -> bytes:
            at, size = self.names.field(f"code.{name}")
            return record[at : at + size]

        start, end, offset, id_bytes = (
            int.from_bytes(bytes_of(name), "little") for name in ("start", "end", "offset", "id_bytes")
        )
        path = os.fsdecode(bytes_of("path").partition(b"\0")[0])
        return Mapping(start, end, offset, path, bytes_of("id")[:id_bytes].hex())

    # ---- the whole ----

    def heap(self, with_entries: bool = False) -> Heap:
        heap = self._read_slabs()
        if self.rate():
            heap.span_of_sample = heap.units.copy()
            self._read_samples(heap)
        self._read_bins(heap, with_entries)
        return heap

    def size_classes(self, heap: Heap) -> list[SizeClass]:
        still = self.is_slab(heap.units[heap.slabs])
        slabs = heap.slabs[still]
        of_class = heap.units["size_class"][slabs]
        room = self.blocks[of_class]
        free = np.minimum(heap.units["free"][slabs].astype(np.int64), room)
        waiting = np.minimum(heap.waiting[still], room - free)
        counts = [
            np.bincount(of_class, weights, len(self.classes)).astype(np.int64).tolist()
            for weights in (None, room - free - waiting, free, waiting)
        ]
        found = []
        for number, (each, slabs_of, out, free_of, waiting_of) in enumerate(zip(self.classes, *counts)):
            if slabs_of:
                live = out - min(out, heap.cached[number])
                found.append(
                    SizeClass(
                        each.size,
                        each.units * self.unit_bytes,
                        slabs_of,
                        live,
                        heap.cached[number],
                        free_of,
                        waiting_of,
                    )
                )
        return found

    def snapshot(self, heap: Heap | None = None, pinned: bool = False) -> Snapshot:
        """What hak_profile_write would write; includes who keeps pages, which takes longer than the rest, only if `pinned`."""
        heap = heap or self.heap()
        large = heap.units[heap.units["kind"] == self.value("kind.large")]
        taken = Snapshot(file=self.memory.name, process=self.memory.process, time=self.memory.time, rate=self.rate())
        taken.classes = self.size_classes(heap)
        taken.large_blocks, taken.large_bytes = len(large), int(large["bytes"].sum())
        taken.heap_names = heap.heap_names
        if taken.rate:
            taken.samples = self._samples(heap, self.now(heap))
        if pinned:
            taken.page_size, taken.strata, taken.tracked = outside_pinned.read(self, heap)
        outside_events.read(self, taken)
        taken.sites = self._sites()
        taken.checked, taken.wrong = (
            self.names.number(self.names.place(f"site.{name}")) for name in ("checked", "wrong")
        )
        taken.program = self.memory.program()
        taken.mappings = self.memory.mappings() + self._closed()
        taken.untold = descriptor.untold(self.memory, self.names)
        taken.moving, taken.slabs = heap.moving, len(heap.slabs)
        return plausible.snapshot(taken)


def read(memory: Memory) -> Snapshot:
    with whole(memory):
        return Reader(memory).snapshot(pinned=True)

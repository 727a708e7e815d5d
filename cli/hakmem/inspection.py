"""What lies at an address of a process or a core."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from hakmem import resident
from hakmem.memory import Memory, Unreadable
from hakmem.names import printable
from hakmem.outside import Heap, Reader
from hakmem.render import byte_text
from hakmem.snapshots import Sample, Snapshot

LIVE, IN_BIN, FREE, REMOTE, QUARANTINED = (
    "live",
    "in a thread's bin",
    "free in its slab",
    "freed by another thread, not collected",
    "in quarantine",
)
FOREIGN, METADATA, UNUSED, TAIL, OWN, GUARD, SLOT = (
    "foreign", "hakmem's records", "free memory", "the unused end of a slab", "hakmem's own memory", "a guard", "a guard slot"
)  # fmt: skip


@dataclass
class Finding:
    address: int
    kind: str  # the state of a block, or what else lies there
    detail: str = ""
    start: int | None = None  # the block's
    size: int = 0
    size_class: int | None = None  # bytes; None: a large block, or no block
    sample: Sample | None = None
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def is_block(self) -> bool:
        return self.start is not None

    def sentence(self) -> str:
        if not self.is_block:
            return f"{self.address:#x}: {self.kind}{f', {self.detail}' if self.detail else ''}"
        where = f"byte {self.address - self.start} of the block" if self.address != self.start else "the block"
        of_class = f"class {self.size_class}" if self.size_class is not None else "a large block"
        size = f"{self.size} bytes" if self.size < 1024 else f"{byte_text(self.size)} ({self.size} bytes)"
        return f"{self.address:#x}: {where} at {self.start:#x}, {size}, {of_class}: {self.kind}"


def _has_bit(bits, unit: int, block: int) -> bool:
    group, word = divmod(block // 64, bits.shape[2])
    return group < len(bits) and bool(int(bits[group, unit, word]) >> block % 64 & 1)


def _foreign(memory: Memory, address: int) -> Finding:
    area = memory.area_at(address)
    if area is None:
        detail = "near NULL" if address < 1 << 16 else "nothing is mapped there"
    elif area.path.startswith("/"):
        detail = f"{printable(area.path)}+{address - area.start + area.offset:#x}"
    else:
        detail = printable(area.path) or "an anonymous mapping"
    return Finding(address, FOREIGN, detail)


def _in_slab(reader: Reader, heap: Heap, address: int, head: int) -> Finding:
    each = reader.classes[int(heap.units["size_class"][head])]
    start = heap.base + head * heap.unit_bytes
    block = (address - start) // each.step
    if block >= each.blocks:
        return Finding(address, TAIL, f"of class {each.size}")
    begin = start + block * each.step
    state = LIVE
    if _has_bit(heap.free_bits, head, block):
        state = FREE
    elif _has_bit(heap.remote_bits, head, block):
        state = REMOTE
    elif any((bin_.entries == begin).any() for bin_ in heap.bins):
        state = IN_BIN
    elif (heap.quarantined == begin).any():
        state = QUARANTINED
    found = Finding(address, state, start=begin, size=each.size, size_class=each.size)
    free, waiting = int(heap.units["free"][head]), int(heap.waiting[heap.slabs == head].sum())
    found.facts["slab"] = (
        f"at {start:#x}, {each.blocks} blocks of {each.size} bytes: {free} free, {waiting} freed by other threads, "
        f"{each.blocks - free - waiting} live or in bins"
    )
    return found


def _in_large(heap: Heap, address: int, head: int) -> Finding:
    start, size = heap.base + head * heap.unit_bytes, int(heap.units["bytes"][head])
    if address - start >= size:
        return Finding(address, UNUSED, f"past the end of the large block at {start:#x}")
    return Finding(address, LIVE, start=start, size=size)


def _in_region(reader: Reader, heap: Heap, address: int) -> Finding:
    unit = (address - heap.base) // heap.unit_bytes
    kinds = {
        reader.value(f"kind.{name}"): name for name in ("free", "slab", "inside", "large", "slots", "meta", "guard")
    }
    head = int(heap.units["head"][unit]) if kinds.get(int(heap.units["kind"][unit])) == "inside" else unit
    kind = kinds.get(int(heap.units["kind"][head]), "free")
    if kind == "slab":
        return _in_slab(reader, heap, address, head)
    if kind == "large":
        return _in_large(heap, address, head)
    if kind in ("slots", "meta", "guard"):
        return Finding(address, {"slots": SLOT, "meta": OWN, "guard": GUARD}[kind])
    superslab, bit = divmod(unit, reader.per_superslab)
    dirty = int(heap.superslabs["dirty"][superslab]) >> bit & 1
    return Finding(address, UNUSED, "written before, not given back yet" if dirty else "never written, or given back")


def _own_record(reader: Reader, heap: Heap, address: int) -> Finding | None:
    with contextlib.suppress(Unreadable):  # a core may lack the records
        for start, end, what in resident.own_records(reader, heap):
            if start <= address < end:
                return Finding(address, METADATA, what)
    return None


def inspect(reader: Reader, address: int) -> tuple[Finding, Snapshot]:
    heap = reader.heap(with_entries=True)
    taken = reader.snapshot(heap)
    if heap.base <= address < heap.base + heap.size:
        found = _in_region(reader, heap, address)
    else:
        found = _own_record(reader, heap, address) or _foreign(reader.memory, address)
        for name in reader.names.zones:
            start, stride, each = reader.names.zone(name)
            if start <= address < start + -(-len(heap.units) // each) * stride:
                found = Finding(address, METADATA, f"the zone of {name.replace('_', ' ')}")
    if found.start is not None and found.kind == LIVE:
        found.sample = next((sample for sample in taken.samples if sample.address == found.start), None)
    return found, taken

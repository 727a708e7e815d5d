"""What can be true of a process, a snapshot or another file; anything beyond is damage or a forgery.

Nothing that is read can be trusted: a process of another user may hold something that looks like a heap, and a file may have been cut. So
sizes are checked against these bounds before memory is allocated for them, and figures before anything is computed from them. No command
fails on what passes here; beyond these checks, `reading` catches arithmetic errors from absurd numbers.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from hakmem.errors import Failure

if TYPE_CHECKING:
    from hakmem.snapshots import Sample, Snapshot, TrackedSlab

EXIT_CODE = 2

# One past the most that hakmem can write, or that other formats have room for.
_FIGURES = 1 << 63  # for sums of figures too
_ADDRESSES = 1 << 64
_TIMES = 1 << 33  # the year 2242
_MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
READ_MOST = max(1 << 30, _MACHINE // 4)  # bytes read at once; the records of a heap are less than 1/1000 of it
_QUARTERS = 4
_SLAB_PAGES = 64  # in a tracked slab: a word has a bit for each
_PAGE_SIZES = [1 << shift for shift in range(12, 23)]
_ARITHMETIC = (ArithmeticError, LookupError, MemoryError, ValueError, struct.error)


class Damaged(Failure):
    """Data that can't be true."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}", EXIT_CODE)


@contextlib.contextmanager
def reading(name: str, what: str) -> Iterator[None]:
    """Use around code that computes with numbers that were read: `what` is the message if they make no sense."""
    try:
        yield
    except _ARITHMETIC as error:
        raise Damaged(name, what) from error


def must(true: bool, name: str, what: str) -> None:
    if not true:
        raise Damaged(name, what)


# ---- Numbers in files: they raise ValueError, as int() does, since the reader of the file knows the line ----


def _below(number: int, bound: int) -> int:
    if not 0 <= number < bound:
        raise ValueError("no such number")
    return number


def figure(number: int) -> int:
    return _below(number, _FIGURES)


def address(number: int) -> int:
    return _below(number, _ADDRESSES)


def when(seconds: float) -> float:
    """Checks a time in seconds since 1970."""
    return _below(seconds, _TIMES)


# ---- Black boxes ----

_BOX_HEAD = 1 << 16
_BOX_SLOTS = 1 << 12


def box(name: str, head_bytes: int, slots: int, slot_bytes: int, ask_at: int) -> None:
    """Checks a box's head. The file may be shorter than that if slots were not written yet or it was cut."""
    fits = 0 < head_bytes <= min(slot_bytes, _BOX_HEAD) and 0 < slots <= _BOX_SLOTS and slot_bytes < _FIGURES
    must(fits and 0 <= ask_at < _BOX_HEAD, name, "the black box can't be true: it has no room for what it claims to have")


# ---- Memory ----


def room(name: str, size: int) -> None:
    """Checks the size of a single read."""
    must(0 <= size <= READ_MOST, name, f"it can't be true: it claims to have a piece of {size} bytes")


def page_size(name: str, size: int) -> int:
    must(size in _PAGE_SIZES, name, f"it can't be true: a page of {size} bytes")
    return size


def number_size(name: str, key: str, size: int) -> int:
    must(size in (1, 2, 4, 8), name, f"its hakmem can't be true: {key} is a number of {size} bytes")
    return size


# The ranges of a library's constants. Those that are not here are only compared.
_VALUES = {
    "granule.bytes": (8, 1 << 8),
    "unit.bytes": (1 << 12, 1 << 24),
    "superslab.units": (1, 64),
    "class.zero": (0, 1 << 12),
    "bits.group_words": (1, 64),
    "sample.state_bits": (0, 31),
    "sample.clock_ms": (1, 1 << 20),
    "track.state_bits": (0, 31),
    "track.site_shift": (0, 63),
    "track.born_shift": (0, 63),
    "track.chunk_bytes": (1, 1 << 30),
    "site.chunk": (16, 1 << 20),
    "site.most": (1, 1 << 24),
    "closed.most": (0, 1 << 16),
    "event.object_bits": (0, 63),
    "event.groups": (1, 1 << 16),
    "event.rows_most": (0, 1 << 20),
    "heap.word_bytes": (1, 64),
}
_STRUCTURES = 1 << 24  # bytes
_LEAST_BLOCK = 8


def library(
    name: str,
    values: Mapping[str, int],
    fields: Mapping[str, tuple[int, int]],
    zones: Mapping[str, tuple[str, int, int]],
    classes: Iterable[tuple[int, int]],
) -> None:
    """Checks how a process's hakmem describes its structures."""
    for key, (least, most) in _VALUES.items():
        must(least <= values.get(key, least) <= most, name, f"its hakmem can't be true: {key} is {values.get(key)}")
    for key, (offset, size) in fields.items():
        must(offset + size <= _STRUCTURES, name, f"its hakmem can't be true: {key} ends at {offset + size}")
    for key, (_, stride, units) in zones.items():
        must(0 < stride <= _STRUCTURES and 0 < units <= 64, name, f"its hakmem can't be true: {key} has elements of {stride} bytes")
    unit, most = values.get("unit.bytes", 0), values.get("superslab.units", 0)
    for size, units in classes:
        fits = 0 < units <= most and _LEAST_BLOCK <= size <= units * unit
        must(fits, name, f"its hakmem can't be true: blocks of {size} bytes in {units} units")


# ---- Snapshots ----


def _figures(taken: Snapshot) -> Iterator[int]:
    """All numbers without bounds of their own."""
    yield from (taken.process, taken.rate, taken.large_blocks, taken.large_bytes, taken.freed or 0, taken.checked, taken.wrong)
    yield from (taken.thinned, taken.resident, taken.group, taken.group_limit, taken.free_spans, taken.own)
    for each in taken.classes:
        yield from (each.block_size, each.slab_size, each.slabs, each.live, each.cached, each.free, each.remote)
    for each in taken.samples:
        yield from (each.asked, each.site, each.tag)
    for each in taken.allocated.values():
        yield from (each.objects, each.bytes)
    for each in taken.events.values():
        yield from (each.objects, each.bytes)
    for each in taken.counted.values():
        yield from (each.block_size, each.objects, each.bytes)
    for each in taken.strata:
        yield from (each.block_size, each.slabs, each.tracked, each.pages, each.waste, each.idle)
    yield from (parent for parent, _ in taken.sites.values())


def _addresses(taken: Snapshot) -> Iterator[int]:
    yield from (each.address for each in taken.samples)
    yield from (each.address for each in taken.tracked)
    yield from (at for _, at in taken.sites.values())
    for each in taken.mappings:
        yield from (each.start, each.end, each.offset)


def _sums(taken: Snapshot) -> Iterator[int]:
    yield taken.live_bytes
    yield taken.large_blocks + sum(each.live for each in taken.classes)
    yield sum(each.slabs * each.slab_size for each in taken.classes)
    yield sum(each.waste for each in taken.strata)
    for counts in (taken.counted, taken.allocated):
        yield sum(each.objects for each in counts.values())
        yield sum(each.bytes for each in counts.values())


def _is_sample(each: Sample) -> bool:
    return 0 < each.size < _FIGURES and 0 < each.chance <= 1 and 0 <= each.age < math.inf


def _is_slab(slab: TrackedSlab, page_size: int) -> bool:
    most = _SLAB_PAGES * page_size
    blocks = [each.block for each in slab.survivors]
    return (
        0 < slab.block_size <= most
        and 0 <= slab.quarter < _QUARTERS
        and 0 <= slab.pages < 1 << _SLAB_PAGES
        and all(0 <= block * slab.block_size < most for block in blocks)
        and len(set(blocks)) == len(blocks)
        and all(0 <= each.age < math.inf for each in slab.survivors)
    )


def snapshot(taken: Snapshot) -> Snapshot:
    """Checks a snapshot from a file, or read from outside a process, and returns it."""
    name = taken.file
    must(0 <= taken.time < _TIMES, name, "it can't be true: its time is out of range")
    must(all(0 <= each < _FIGURES for each in _figures(taken)), name, "it can't be true: a figure is out of range")
    must(all(0 <= each < _ADDRESSES for each in _addresses(taken)), name, "it can't be true: an address is out of range")
    must(max(_sums(taken)) < _FIGURES, name, "it can't be true: the sum of its figures is out of range")
    must(all(map(_is_sample, taken.samples)), name, "it can't be true: a sampled block is impossible")
    must(all(0 <= each.quarter < _QUARTERS for each in taken.strata), name, "it can't be true: its pinned pages are impossible")
    if taken.tracked:
        known = taken.page_size in _PAGE_SIZES and all(_is_slab(each, taken.page_size) for each in taken.tracked)
        must(known, name, "it can't be true: a tracked slab is impossible")
    events = (*taken.allocated.values(), *taken.events.values())
    must(all(0 < each.events < _FIGURES for each in events), name, "it can't be true: its counts of events are out of range")
    return taken

"""Which pages of a process are resident, and how many bytes of a heap's blocks lie on each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hakmem.memory import Area, parse_maps
from hakmem.names import kernel_lines

if TYPE_CHECKING:
    from hakmem.outside import Heap, Reader

# PAGEMAP_SCAN of linux/fs.h, since Linux 6.7: only it identifies the kernel's zero page, which counts for no process.
_SCAN = 3 << 30 | 96 << 16 | ord("f") << 8 | 16
_SCAN_ARGUMENT = struct.Struct("<12Q")
_PRESENT, _ZERO, _HUGE = 1 << 3, 1 << 5, 1 << 6
_REGIONS = 4096
_PAGEMAP_PRESENT = np.uint64(1 << 63)
_PRODUCTS_AT_ONCE = 1 << 18  # for more, BLAS uses several threads, which wait for each other on busy processors


@dataclass(frozen=True)
class Mapped:
    """A mapping of smaps, in bytes."""

    area: Area
    resident: int
    anonymous: int
    huge: int
    swapped: int


def mappings(folder: Path) -> list[Mapped]:
    """Reads all of /proc/PID/smaps; if the process maps something meanwhile, it waits."""
    found: list[Mapped] = []
    counts: dict[str, int] = {}
    area = None
    for line in kernel_lines(folder / "smaps"):
        key, _, rest = line.partition(":")
        if key in ("Rss", "Anonymous", "AnonHugePages", "Swap"):
            counts[key] = int(rest.split()[0]) << 10
        elif " " in key:  # a line of maps: addresses, flags, ...
            if area is not None:
                found.append(_mapped(area, counts))
            (area,), counts = parse_maps([line]), {}
    if area is not None:
        found.append(_mapped(area, counts))
    return found


def _mapped(area: Area, counts: dict[str, int]) -> Mapped:
    return Mapped(area, *(counts.get(key, 0) for key in ("Rss", "Anonymous", "AnonHugePages", "Swap")))


@dataclass
class Pages:
    """For each page in a range of addresses: whether it is resident, and whether it is part of a huge page."""

    present: np.ndarray
    huge: np.ndarray


class Pagemap:
    """/proc/PID/pagemap."""

    def __init__(self, folder: Path, page: int) -> None:
        self._page = page
        self._file = os.open(folder / "pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self._scans = True

    def close(self) -> None:
        os.close(self._file)

    def pages(self, start: int, size: int) -> Pages:
        first = start - start % self._page
        count = -(-(start + size - first) // self._page)
        found = Pages(np.zeros(count, bool), np.zeros(count, bool))
        if self._scans:
            try:
                self._scan(first, found)
                return found
            except OSError:
                self._scans = False
        data = np.zeros(count, np.uint64)
        with contextlib.suppress(OSError):
            os.preadv(self._file, [memoryview(data).cast("B")], first // self._page * 8)
        found.present = data & _PAGEMAP_PRESENT != 0
        return found

    def _scan(self, first: int, found: Pages) -> None:
        regions = np.zeros((_REGIONS, 3), np.uint64)
        at, end = first, first + len(found.present) * self._page
        while at < end:
            argument = bytearray(
                _SCAN_ARGUMENT.pack(
                    _SCAN_ARGUMENT.size,
                    0,
                    at,
                    end,
                    0,
                    regions.ctypes.data,
                    _REGIONS,
                    0,
                    _ZERO,
                    _PRESENT | _ZERO,
                    0,
                    _HUGE,
                )
            )
            count = fcntl.ioctl(self._file, _SCAN, argument)
            at = _SCAN_ARGUMENT.unpack(argument)[4]
            for start, stop, categories in regions[:count].tolist():
                part = slice((start - first) // self._page, (stop - first) // self._page)
                found.present[part] = True
                found.huge[part] = bool(categories & _HUGE)
            if not count:
                break


# ---- What lies on each page of a slab ----


def _overlaps(blocks: int, size: int, pages: int, page: int) -> np.ndarray:
    """The bytes of each block on each page."""
    starts = np.arange(blocks)[:, None] * size
    edges = np.arange(pages)[None, :] * page
    return np.clip(np.minimum(starts + size, edges + page) - np.maximum(starts, edges), 0, None).astype(np.float32)


def of_bits(words: np.ndarray, blocks: int, size: int, pages: int, page: int) -> np.ndarray:
    """For each slab, given as a row of words: the bytes of blocks with a set bit on each of its pages."""
    each = page // size if size else 0  # blocks on a page
    if each and page % size == 0 and each % 8 == 0:
        counts = np.bitwise_count(np.ascontiguousarray(words).view(np.uint8)[:, : pages * each // 8])
        return counts.reshape(len(words), pages, -1).sum(axis=2, dtype=np.int64) * size
    overlaps, found = _overlaps(blocks, size, pages, page), np.empty((len(words), pages), np.int64)
    step = max(1, _PRODUCTS_AT_ONCE // overlaps.size)
    for first in range(0, len(words), step):
        part = np.ascontiguousarray(words[first : first + step]).view(np.uint8)
        bits = np.unpackbits(part, axis=1, bitorder="little")[:, :blocks]
        found[first : first + step] = bits.astype(np.float32) @ overlaps
    return found


def of_blocks(addresses: np.ndarray, size: int, base: int, page: int, found: np.ndarray) -> None:
    """Adds the bytes of these blocks on each page to `found`."""
    starts = addresses.astype(np.int64) - base
    starts = starts[(starts >= 0) & (starts + size <= len(found) * page)]
    for step in range(-(-size // page) + 1):
        numbers = starts // page + step
        held = np.minimum(starts + size, (numbers + 1) * page) - np.maximum(starts, numbers * page)
        inside = held > 0
        np.add.at(found, numbers[inside], held[inside])


@dataclass
class Contents:
    """For each page of a heap's block memory: what it is part of, and in slabs how many of its bytes are not live."""

    kind: np.ndarray  # the span's
    size_class: np.ndarray
    free: np.ndarray
    waiting: np.ndarray
    cached: np.ndarray
    past: np.ndarray  # past the last byte of a large block
    dirty: np.ndarray  # in free units: written since they were given back


def contents(reader: Reader, heap: Heap) -> Contents:
    page = reader.memory.page_size
    per_unit = heap.unit_bytes // page
    count = len(heap.units) * per_unit
    kinds, classes = heap.units["kind"].copy(), heap.units["size_class"].copy()
    inside = np.flatnonzero(kinds == reader.value("kind.inside"))
    heads = np.minimum(heap.units["head"][inside], len(kinds) - 1)
    kinds[inside], classes[inside] = kinds[heads], classes[heads]
    free, waiting, cached = (np.zeros(count, np.int64) for _ in range(3))
    of_class = heap.units["size_class"][heap.slabs]
    for number, each in enumerate(reader.classes):
        slabs = heap.slabs[of_class == number]
        if not len(slabs):
            continue
        if not each.size:  # malloc(0)'s: inaccessible
            free[slabs[:, None] * per_unit + np.arange(per_unit)] = page
            continue
        pages, words = each.units * per_unit, -(-each.blocks // 64)
        tail = np.clip(np.arange(1, pages + 1) * page - each.blocks * each.size, 0, page)
        numbers = slabs[:, None] * per_unit + np.arange(pages)
        slabs, numbers = slabs[numbers[:, -1] < count], numbers[numbers[:, -1] < count]
        free[numbers] = tail
        for bits, into in ((heap.free_bits, free), (heap.remote_bits, waiting)):
            some = np.flatnonzero(bits[:, slabs].any(axis=(0, 2)))
            if len(some):
                into[numbers[some]] += of_bits(
                    heap.words(bits, slabs[some], words), each.blocks, each.size, pages, page
                )
        held = [bin_.entries for bin_ in heap.bins if bin_.size_class == number]
        if held:
            of_blocks(np.concatenate(held), each.size, heap.base, page, cached)
    return Contents(
        np.repeat(kinds, per_unit), np.repeat(classes, per_unit), free, waiting, cached,
        _past(reader, heap, count), np.repeat(_dirty(reader, heap), per_unit),
    )  # fmt: skip


def _past(reader: Reader, heap: Heap, count: int) -> np.ndarray:
    page, past = reader.memory.page_size, np.zeros(count, bool)
    for unit in np.flatnonzero(heap.units["kind"] == reader.value("kind.large")).tolist():
        record = heap.units[unit]
        first, per_unit = unit * (heap.unit_bytes // page), heap.unit_bytes // page
        past[first + -(-int(record["bytes"]) // page) : first + int(record["units"]) * per_unit] = True
    return past


def _dirty(reader: Reader, heap: Heap) -> np.ndarray:
    words = np.ascontiguousarray(heap.superslabs["dirty"]).view(np.uint8)
    return np.unpackbits(words, bitorder="little")[: len(heap.units)].astype(bool)

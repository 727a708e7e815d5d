"""Reads where a process's hakmem keeps its structures, from the tables of src/entry/descriptor.c, by names alone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hakmem import plausible
from hakmem.errors import Failure
from hakmem.memory import Core, Memory, Unreadable

MAGIC = b"hakmem\x1d\xe5\xc2\x1b\x70\x0e\x88\x93\x5a\xf1"
VERSION = 1
_NOTE = ("hakmem", 0x68616B)
_NAME = 24
_HEAD = struct.Struct("<16sQII")  # magic, self, version, bytes
_TABLES = ("values", "fields", "places", "zones", "classes")
_ROWS_MOST = 4096


def _name(row: bytes, at: int = 0) -> str:
    return row[at : at + _NAME].rstrip(b"\0").decode(errors="replace")


class Descriptor:
    """The names of one library in one process."""

    def __init__(self, memory: Memory, address: int) -> None:
        self.memory = memory
        self.address = address
        head = memory.bytes_at(address, _HEAD.size + 16 * len(_TABLES))
        magic, itself, version, _ = _HEAD.unpack_from(head)
        if magic != MAGIC or itself != address:
            raise Unreadable("no descriptor, or a copy of one")
        if version != VERSION:
            raise Failure(
                f"{memory.name}: its hakmem describes itself in a format ({version}) that this tool does not know"
            )
        rows = {name: self._rows(head, index) for index, name in enumerate(_TABLES)}
        self.values = {_name(row): struct.unpack_from("<Q", row, _NAME)[0] for row in rows["values"]}
        self.fields = {_name(row): struct.unpack_from("<II", row, _NAME) for row in rows["fields"]}
        self.places = {_name(row): struct.unpack_from("<Q", row, _NAME)[0] for row in rows["places"]}
        self.zones = {
            _name(row): (_name(row, _NAME), *struct.unpack_from("<II", row, 2 * _NAME)) for row in rows["zones"]
        }
        classes = [struct.unpack_from("<II", row) for row in rows["classes"]]
        plausible.library(memory.name, self.values, self.fields, self.zones, classes)
        self._zones: dict[str, tuple[int, int, int]] = {}
        self.others: list[int] = []  # addresses of the descriptors of other hakmems in the process
        self.unread = ""  # what is wrong with a descriptor that can't be read
        self.classes = classes

    def _rows(self, head: bytes, index: int) -> list[bytes]:
        address, stride, count = struct.unpack_from("<QII", head, _HEAD.size + 16 * index)
        if not 0 < stride <= 256 or count > _ROWS_MOST:
            raise Unreadable("no table")
        data = self.memory.bytes_at(address, stride * count)
        return [data[stride * row : stride * (row + 1)] for row in range(count)]

    def _missing(self, name: str) -> Failure:
        major, minor, patch = (self.values.get(f"library.{part}", 0) for part in ("major", "minor", "patch"))
        return Failure(f"{self.memory.name}: its hakmem, {major}.{minor}.{patch}, does not describe {name}")

    def value(self, name: str) -> int:
        if name not in self.values:
            raise self._missing(name)
        return self.values[name]

    def place(self, name: str) -> int:
        if name not in self.places:
            raise self._missing(name)
        return self.places[name]

    def field(self, name: str) -> tuple[int, int]:
        """The field's offset and size."""
        if name not in self.fields:
            raise self._missing(name)
        return self.fields[name]

    def word(self, place: str, name: str | None = None) -> int:
        """The field `name` of the structure at `place`; `name` is `place` by default."""
        offset, size = self.field(name or place)
        return self.number(self.place(place) + offset, size)

    def number(self, address: int, size: int = 8) -> int:
        return int.from_bytes(self.memory.bytes_at(address, size), "little")

    def zone(self, name: str) -> tuple[int, int, int]:
        """The zone's address, which never changes, the bytes of an element, and the number of units per element."""
        if name not in self._zones:
            if name not in self.zones:
                raise self._missing(name)
            pointer, stride, units = self.zones[name]
            self._zones[name] = self.word("region", pointer), stride, units
        return self._zones[name]

    def record(self, structure: str, names: list[str]) -> np.dtype:
        """A type for records of the structure with these fields, each a number."""
        fields: dict[str, Any] = {"names": names, "formats": [], "offsets": [], "itemsize": self.field(structure)[1]}
        for name in names:
            offset, size = self.field(f"{structure}.{name}")
            fields["offsets"].append(offset)
            fields["formats"].append(f"<u{plausible.number_size(self.memory.name, name, size)}")
        return np.dtype(fields)


def _noted(memory: Memory, start: int) -> Iterator[int]:
    """The addresses in the notes of the program or library at `start`."""
    for name, kind, address, content in memory.notes_at(start):
        if (name, kind) == _NOTE and len(content) == 8:
            yield (address + struct.unpack("<q", content)[0]) % (1 << 64)


def _candidates(memory: Memory) -> Iterator[int]:
    """The program's own descriptor comes first, since its malloc precedes that of a preloaded library."""
    program = memory.area_at(memory.program())
    of_program = program.path if program else ""
    for _, start in sorted(memory.images(), key=lambda image: image[0] != of_program):
        yield from _noted(memory, start)


def _all(memory: Memory) -> tuple[list[Descriptor], Failure | None]:
    """All readable descriptors, and what is wrong with the first unreadable one."""
    found: dict[int, Descriptor] = {}
    wrong: Failure | None = None

    def look(addresses: Iterator[int]) -> None:
        nonlocal wrong
        for address in addresses:
            if address not in found:
                try:
                    one = Descriptor(memory, address)
                    one.word("region", "region.units")
                    found[address] = one
                except Unreadable:
                    continue
                except Failure as failure:
                    wrong = wrong or failure

    look(_candidates(memory))
    if not found and isinstance(memory, Core):  # the core may lack the pages of the notes
        look(memory.find(MAGIC))
    return [*found.values()], wrong


def _use(found: Descriptor) -> tuple[int, int]:
    """How many units are in use, and how many there are. Each hakmem has some from its start, even if it never allocated."""
    try:
        units = found.word("region", "region.units")
        address, stride, each = found.zone("units")
        records = found.memory.read(address, -(-units // each) * stride).view(found.record("unit", ["kind"]))
        empty = [found.values[kind] for kind in ("kind.free", "kind.cached") if kind in found.values]
        return int((~np.isin(records["kind"][:units], empty)).sum()), units
    except (Unreadable, Failure, ValueError):
        return 0, 0


def _lacking(memory: Memory) -> str:
    """The path of a hakmem library that a core lacks, except possibly its first page with the headers; empty if there is none."""
    ours = [area for area in memory.areas if isinstance(memory, Core) and Path(area.path).name.startswith("libhakmem")]
    for path in dict.fromkeys(area.path for area in ours):
        if not any(_is_there(memory, area.start) for area in ours if area.path == path and area.offset):
            return path
    return ""


def _is_there(memory: Memory, address: int) -> bool:
    try:
        return len(memory.bytes_at(address, 1)) == 1
    except Unreadable:
        return False


def find(memory: Memory) -> Descriptor:
    """The descriptor of the most used hakmem: a program that is linked with one may have another one preloaded."""
    several, wrong = _all(memory)
    if several:
        found = several[0] if len(several) == 1 else max(several, key=_use)  # of equals the first, which is the program's own
        found.others = [each.address for each in several if each is not found]
        found.unread = str(wrong) if wrong else ""
        if wrong is not None and not _use(found)[0]:
            raise wrong
        if not found.word("region", "region.units"):
            raise Failure(f"{memory.name}: hakmem is there, but nothing has been allocated from it yet")
        return found
    if wrong is not None:
        raise wrong
    if memory.cut:
        raise plausible.Damaged(memory.name, memory.cut)
    if lacking := _lacking(memory):
        why = "/proc/PID/coredump_filter selects what a core contains; gcore -a writes everything"
        raise Failure(f"{memory.name}: the core lacks the memory of {lacking}: {why}")
    raise Failure(f"{memory.name}: no hakmem in it, or one too old to be read from outside")


def _is_in_use(memory: Memory, address: int) -> bool:
    """Whether this hakmem holds more than each has from the start."""
    try:
        found = Descriptor(memory, address)
        return found.word("region", "region.units") > found.value("superslab.units")
    except (Unreadable, Failure):
        return False


def untold(memory: Memory, found: Descriptor) -> str:
    """A remark on another hakmem that holds memory besides the one that was found; empty if there is none."""
    for address in found.others:
        if _is_in_use(memory, address):
            area = memory.area_at(address)
            where = f", in {area.path}" if area and area.path else ""
            return f"another hakmem is in use besides the one shown here{where}: what it holds is not shown"
    return f"another hakmem can't be read: {found.unread}" if found.unread else ""

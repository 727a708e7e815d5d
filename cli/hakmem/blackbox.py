"""Reads black boxes, the files of HAKMEM_BLACKBOX; docs/insight.md describes their format."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from hakmem import plausible
from hakmem.errors import Failure
from hakmem.names import printable
from hakmem.plausible import Damaged

_MAGIC = b"hakmem-blackbox "
_VERSION = 1
_HEAD_MOST = 4096  # bytes of the head


@dataclass
class Entry:
    """A snapshot and when it was taken."""

    number: int
    time: float  # seconds since 1970
    resident: int  # bytes; 0: not known
    group: int  # bytes of the control group
    limit: int  # of the group; 0: none
    why: str
    text: bytes


@dataclass
class Box:
    file: str
    process: int = 0
    entries: list[Entry] = field(default_factory=list)  # the newest first
    torn: int = 0  # entries that were being written when the process ended, or overwritten in part
    ask_at: int = 0  # in a window: the place of the word that requests a new entry

    @property
    def newest(self) -> Entry:
        if not self.entries:
            raise Failure(f"{self.file}: the black box has no complete entry: the process was killed before the first one was written")
        return self.entries[0]


def is_box(start: bytes) -> bool:
    """Whether a file with this beginning is a black box."""
    return start.startswith(_MAGIC)


def _entry(slot: bytes, head_bytes: int) -> Entry | None:
    """The entry in a slot; None if it is not whole."""
    words = slot[:head_bytes].split(b"\n", 1)[0].split()
    if len(words) < 9 or words[0] != b"entry":
        return None
    number, size, total, milliseconds, resident, group, limit = (plausible.figure(int(word)) for word in words[1:8])
    text = slot[head_bytes : head_bytes + size]
    if len(text) != size or zlib.crc32(text) != total:
        return None
    return Entry(number, plausible.when(milliseconds / 1000), resident, group, limit, printable(os.fsdecode(words[8])), text)


def parse(data: bytes, name: str = "") -> Box:
    """The box; `name` is what messages call its file."""
    if not is_box(data):
        raise Damaged(name, "not a black box of hakmem: its first line does not say so")
    box = Box(name)
    try:
        facts = dict(line.split(b" ", 1) for line in data[:_HEAD_MOST].split(b"\0", 1)[0].splitlines())
        if int(facts[b"hakmem-blackbox"]) != _VERSION:
            raise Failure(f"{name}: the black box is of another version of hakmem")
        box.process, box.ask_at = plausible.figure(int(facts[b"process"])), int(facts.get(b"ask_at", 0))
        head_bytes, slots, slot_bytes = (int(facts[key]) for key in (b"head_bytes", b"slots", b"slot_bytes"))
        plausible.box(name, head_bytes, slots, slot_bytes, box.ask_at)
        for slot in range(slots):
            start = head_bytes + slot * slot_bytes
            read = data[start : start + slot_bytes]
            entry = _entry(read, head_bytes)
            if entry is not None:
                box.entries.append(entry)
            elif read.strip(b"\0"):
                box.torn += 1
    except (ValueError, KeyError):
        raise Damaged(name, "the black box can't be read") from None
    box.entries.sort(key=lambda entry: -entry.number)
    return box


def read(path: str) -> Box:
    try:
        return parse(Path(path).read_bytes(), path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None

"""Reads the snapshots that hakmem writes: docs/insight.md tells their format."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hakmem.errors import Failure

_MAGIC = "hakmem-snapshot"
_CERTAIN = 1 << 32
_MOST_TENTHS = 1 << 31  # an age is a difference of 32 bits: past this it is one below zero
_MOST_FRAMES = 1000  # of a stack; hakmem takes 64


@dataclass(slots=True)
class SizeClass:
    """A size class that has slabs, in blocks."""

    block_size: int
    slab_size: int
    slabs: int
    live: int
    cached: int
    free: int
    remote: int


@dataclass(slots=True)
class Sample:
    """A live sampled block; it stands for 1 / chance blocks like it."""

    address: int
    size: int
    asked: int
    chance: float
    site: int
    tag: int
    age: float  # seconds
    quiet: bool  # the record may be of an earlier block in the same place

    @property
    def weight(self) -> float:
        """The bytes that it stands for."""
        return self.size / self.chance

    @property
    def variance(self) -> float:
        """Of the estimate that it is a part of (Horvitz and Thompson's)."""
        return self.size * self.size * (1 - self.chance) / (self.chance * self.chance)


@dataclass(slots=True, frozen=True)
class Mapping:
    """What was mapped as code."""

    start: int
    end: int
    offset: int
    path: str
    build_id: str  # empty where there is none

    @property
    def name(self) -> str:
        return self.path.removesuffix(" (deleted)").rpartition("/")[2]


@dataclass(slots=True)
class Snapshot:
    file: str = ""
    process: int = 0
    time: int = 0
    rate: int = 0  # bytes of blocks that one sample stands for
    classes: list[SizeClass] = field(default_factory=list)
    large_blocks: int = 0
    large_bytes: int = 0
    samples: list[Sample] = field(default_factory=list)
    sites: dict[int, tuple[int, int]] = field(default_factory=dict)  # number: (parent, return address)
    checked: int = 0
    wrong: int = 0
    mappings: list[Mapping] = field(default_factory=list)

    @property
    def live_bytes(self) -> int:
        return sum(each.live * each.block_size for each in self.classes) + self.large_bytes

    @property
    def confidence(self) -> float | None:
        """How often a site found by a short look was right; None if none was looked at again."""
        return 1 - self.wrong / self.checked if self.checked else None

    def stack(self, site: int) -> list[int]:
        """The addresses that the site's calls return to, the innermost first."""
        addresses: list[int] = []
        while site in self.sites and len(addresses) < _MOST_FRAMES:
            site, address = self.sites[site]
            addresses.append(address)
        return addresses


def _process(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.process = int(words[1])


def _time(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.time = int(words[1])


def _rate(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.rate = int(words[1])


def _class(snapshot: Snapshot, words: list[str]) -> None:
    size, slab_size, slabs, live, cached, free, remote = map(int, words[1:8])
    snapshot.classes.append(SizeClass(size, slab_size, slabs, live, cached, free, remote))


def _large(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.large_blocks, snapshot.large_bytes = int(words[1]), int(words[2])


def _sample(snapshot: Snapshot, words: list[str]) -> None:
    size, asked, chance, site, tag, tenths, quiet = map(int, words[2:9])
    if size <= 0 or not 0 <= chance < _CERTAIN:
        raise ValueError("no such sample")
    # A block that came while the snapshot was being written is younger than its clock.
    age = tenths / 10 if tenths < _MOST_TENTHS else 0.0
    share = chance / _CERTAIN if chance else 1.0
    snapshot.samples.append(Sample(int(words[1], 16), size, asked, share, site, tag, age, quiet != 0))


def _sites(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.checked, snapshot.wrong = int(words[2]), int(words[3])


def _site(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.sites[int(words[1])] = (int(words[2]), int(words[3], 16))


def _mapping(snapshot: Snapshot, words: list[str]) -> None:
    start, end = (int(word, 16) for word in words[2].split("-"))
    path = words[7] if len(words) > 7 else ""
    snapshot.mappings.append(Mapping(start, end, int(words[4], 16), path, "" if words[1] == "-" else words[1]))


_KINDS = {
    "process": _process,
    "time": _time,
    "sample_bytes": _rate,
    "class": _class,
    "large": _large,
    "sample": _sample,
    "sites": _sites,
    "site": _site,
}


def is_snapshot(start: bytes) -> bool:
    """Whether a file that begins so is one."""
    return start.startswith(_MAGIC.encode())


def parse(text: str, name: str = "") -> Snapshot:
    """The snapshot; `name` is what messages call its file."""
    lines = text.splitlines()
    if not lines or lines[0].split()[:1] != [_MAGIC]:
        raise Failure(f"{name}: not a snapshot of hakmem: its first line does not say so")
    snapshot = Snapshot(file=name)
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            words = line.split()
            kind = words[0] if words else ""
            read = _KINDS.get(kind)
            if read:
                read(snapshot, words)
            elif kind == "mapping":
                _mapping(snapshot, line.split(None, 7))  # a path may have spaces
            elif kind == "end":
                return snapshot
    except (ValueError, IndexError):
        raise Failure(f"{name}: line {number} can't be read: {lines[number - 1][:80]}") from None
    raise Failure(f"{name}: the snapshot is cut short: it has no end line (its writer was ended, or the disk is full)")


def read(path: str) -> Snapshot:
    try:
        return parse(Path(path).read_bytes().decode(errors="surrogateescape"), path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None

"""Reads the snapshots that hakmem writes; docs/insight.md describes their format."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hakmem import blackbox, plausible
from hakmem.errors import Failure
from hakmem.names import lines_of, printable
from hakmem.plausible import Damaged

_MAGIC = "hakmem-snapshot"
_CERTAIN = 1 << 32
_FIGURES = ("thinned", "resident", "group", "group_limit", "free_spans", "own")
_MOST_TENTHS = 1 << 31  # an age is a 32-bit difference: from here it is negative
_MOST_FRAMES = 1000  # in a stack; hakmem records up to 64


@dataclass
class SizeClass:
    """A size class that has slabs; counts are in blocks."""

    block_size: int
    slab_size: int
    slabs: int
    live: int
    cached: int
    free: int
    remote: int


@dataclass
class Sample:
    """A live sampled block; it stands for 1 / chance blocks like it."""

    address: int
    size: int
    asked: int
    chance: float
    site: int
    tag: int
    age: float  # seconds
    quiet: bool  # the record may be an earlier block's in the same place
    large: bool = False  # a span of its own, possibly of the same size as the blocks of a class

    @property
    def weight(self) -> float:
        """The bytes that it stands for."""
        return self.size / self.chance

    @property
    def variance(self) -> float:
        """Its part of the variance of the estimate (Horvitz and Thompson's)."""
        return self.size * self.size * (1 - self.chance) / (self.chance * self.chance)


@dataclass
class Stratum:
    """Slabs of one class that have live blocks and are about equally full: counts of what these blocks keep of their pages."""

    block_size: int
    quarter: int  # by the share of live blocks: 0 to 3
    slabs: int
    tracked: int
    pages: int  # with live blocks
    waste: int  # bytes of these pages that are in no live block
    idle: int  # bytes of pages without live blocks that are not known to have been given back


@dataclass
class Survivor:
    """A live block of a tracked slab."""

    block: int  # its number in the slab
    site: int
    age: float  # seconds
    quiet: bool


@dataclass
class Freed:
    """Free blocks of a tracked slab that lie at least partly on a page with waste, and were last allocated by one site."""

    page: int  # its number in the slab
    site: int
    blocks: int


@dataclass
class TrackedSlab:
    """A slab with known sites for all its blocks; the blocks on pages with waste are listed."""

    address: int
    block_size: int
    quarter: int
    live: int  # blocks
    waste: int
    pages: int  # a bit for each page with waste
    survivors: list[Survivor] = field(default_factory=list)
    freed: list[Freed] = field(default_factory=list)


@dataclass
class Allocations:
    """What a site allocated while the process was armed, freed since or not, as `events` events stand for it."""

    events: int
    objects: int
    bytes: int

    def __add__(self, other: Allocations) -> Allocations:
        return Allocations(self.events + other.events, self.objects + other.objects, self.bytes + other.bytes)

    def __sub__(self, other: Allocations) -> Allocations:
        return Allocations(self.events - other.events, self.objects - other.objects, self.bytes - other.bytes)


@dataclass
class Counted:
    """What was allocated in one group of sizes while the process was armed: exact, in bytes requested."""

    block_size: int  # 0: sizes differ, or are 0
    objects: int
    bytes: int

    def __sub__(self, other: Counted) -> Counted:
        return Counted(self.block_size, self.objects - other.objects, self.bytes - other.bytes)


@dataclass(frozen=True)
class Mapping:
    """A mapping of code."""

    start: int
    end: int
    offset: int
    path: str
    build_id: str  # empty if there is none

    @property
    def name(self) -> str:
        return self.path.removesuffix(" (deleted)").rpartition("/")[2]


@dataclass
class Snapshot:
    file: str = ""
    process: int = 0
    time: int = 0
    rate: int = 0  # bytes of blocks that one sample stands for
    classes: list[SizeClass] = field(default_factory=list)
    large_blocks: int = 0
    large_bytes: int = 0
    heap_names: dict[int, str] = field(default_factory=dict)  # of named heaps, by the tag of their blocks
    samples: list[Sample] = field(default_factory=list)
    allocated: dict[int, Allocations] = field(default_factory=dict)  # by site
    events: dict[tuple[int, int], Allocations] = field(default_factory=dict)  # the same by site and group
    counted: dict[int, Counted] = field(default_factory=dict)  # by group
    seconds: float = 0.0  # the time of these counts; 0: since the process began
    freed: int | None = None  # blocks freed in that time; None: not known
    armed: float = 0.0  # seconds that it will go on counting, as seen from outside; infinite: for good
    sites: dict[int, tuple[int, int]] = field(default_factory=dict)  # number: (parent, return address)
    checked: int = 0
    wrong: int = 0
    program: int = 0  # its entry point, an address in its code; 0: not known
    mappings: list[Mapping] = field(default_factory=list)
    slabs: int = 0  # those read from outside the process
    moving: int = 0  # of these, the slabs that changed while they were read
    page_size: int = 0
    strata: list[Stratum] = field(default_factory=list)
    tracked: list[TrackedSlab] = field(default_factory=list)
    # What a black box has in addition.
    thinned: int = 0  # the bytes that one sample stood for before some were left out
    resident: int = 0  # bytes; 0: not known
    group: int = 0  # bytes of the control group
    group_limit: int = 0
    free_spans: int = 0
    own: int = 0  # hakmem's own memory, touched or not
    untold: str = ""  # a remark on another hakmem in the process
    window_age: float | None = None  # seconds since a process that may not be traced wrote this to its window; None: not from a window

    @property
    def program_mapping(self) -> Mapping | None:
        """The code of the program itself. For older versions, which do not record it, that of the first file, usually the program."""
        files = [each for each in self.mappings if each.path.startswith("/")]
        found = next((each for each in files if each.start <= self.program < each.end), None)
        return found or next(iter(files), None)

    @property
    def live_bytes(self) -> int:
        return sum(each.live * each.block_size for each in self.classes) + self.large_bytes

    @property
    def confidence(self) -> float | None:
        """The share of the samples with a site found by its innermost calls for which that is right, at least; None if none was checked."""
        return 1 - self.wrong / self.checked if self.checked else None

    def tag_text(self, tag: int) -> str:
        if tag in self.heap_names:
            return f"heap {printable(self.heap_names[tag]) or '(no name)'}"
        return f"tag {tag}" if tag else "no tag"

    def stack(self, site: int) -> list[int]:
        """The return addresses of the site's calls, the innermost first."""
        addresses: list[int] = []
        while site in self.sites and len(addresses) < _MOST_FRAMES:
            site, address = self.sites[site]
            addresses.append(address)
        return addresses


def _numbers(words: list[str], first: int, end: int) -> list[int]:
    """The numbers in those words of a line, which must exist; a later version may append more."""
    if len(words) < end:
        raise ValueError("too few words")
    return [plausible.figure(int(word)) for word in words[first:end]]


def _address(word: str) -> int:
    return plausible.address(int(word, 16))


def _process(snapshot: Snapshot, words: list[str]) -> None:
    (snapshot.process,) = _numbers(words, 1, 2)


def _program(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.program = _address(words[1])


def _time(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.time = plausible.when(int(words[1]))


def _rate(snapshot: Snapshot, words: list[str]) -> None:
    (snapshot.rate,) = _numbers(words, 1, 2)


def _class(snapshot: Snapshot, words: list[str]) -> None:
    size, slab_size, slabs, live, cached, free, remote = _numbers(words, 1, 8)
    snapshot.classes.append(SizeClass(size, slab_size, slabs, live, cached, free, remote))


def _large(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.large_blocks, snapshot.large_bytes = _numbers(words, 1, 3)


def age_of(tenths: int) -> float:
    """The age in seconds. It is negative, and counts as 0, if the block was allocated while the snapshot was written."""
    return tenths / 10 if tenths < _MOST_TENTHS else 0.0


def _sample(snapshot: Snapshot, words: list[str]) -> None:
    size, asked, chance, site, tag, tenths, quiet, large = _numbers(words, 2, 10)
    if size <= 0 or not 0 <= chance < _CERTAIN:
        raise ValueError("no such sample")
    share = chance / _CERTAIN if chance else 1.0
    age = age_of(tenths)
    snapshot.samples.append(Sample(_address(words[1]), size, asked, share, site, tag, age, quiet != 0, large != 0))


def _heap(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.heap_names[plausible.figure(int(words[1]))] = "" if words[2] == "-" else words[2]


def _page_size(snapshot: Snapshot, words: list[str]) -> None:
    (snapshot.page_size,) = _numbers(words, 1, 2)


def _stratum(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.strata.append(Stratum(*_numbers(words, 1, 8)))


def _tracked(snapshot: Snapshot, words: list[str]) -> None:
    size, quarter, live, waste = _numbers(words, 2, 6)
    if size <= 0:
        raise ValueError("no such slab")
    snapshot.tracked.append(TrackedSlab(_address(words[1]), size, quarter, live, waste, _address(words[6])))


def _survivor(snapshot: Snapshot, words: list[str]) -> None:
    block, site, tenths, quiet = _numbers(words, 1, 5)
    snapshot.tracked[-1].survivors.append(Survivor(block, site, age_of(tenths), quiet != 0))


def _freed(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.tracked[-1].freed.append(Freed(*_numbers(words, 1, 4)))


def _event(snapshot: Snapshot, words: list[str]) -> None:
    site, events, objects, size = _numbers(words, 1, 5)
    if events <= 0:
        raise ValueError("no such count")
    snapshot.allocated[site] = Allocations(events, objects, size)


def _event_of(snapshot: Snapshot, words: list[str]) -> None:
    site, group, events, objects, size = _numbers(words, 1, 6)
    if events <= 0:
        raise ValueError("no such count")
    snapshot.events[site, group] = Allocations(events, objects, size)


def _counted(snapshot: Snapshot, words: list[str]) -> None:
    group, block_size, objects, size = _numbers(words, 1, 5)
    snapshot.counted[group] = Counted(block_size, objects, size)


def _sites(snapshot: Snapshot, words: list[str]) -> None:
    snapshot.checked, snapshot.wrong = _numbers(words, 2, 4)


def _site(snapshot: Snapshot, words: list[str]) -> None:
    number, parent = _numbers(words, 1, 3)
    snapshot.sites[number] = (parent, _address(words[3]))


def _mapping(snapshot: Snapshot, words: list[str]) -> None:
    start, end = (_address(word) for word in words[2].split("-"))
    path = words[7] if len(words) > 7 else ""
    snapshot.mappings.append(Mapping(start, end, _address(words[4]), path, "" if words[1] == "-" else words[1]))


def _figure(snapshot: Snapshot, words: list[str]) -> None:
    setattr(snapshot, words[0], *_numbers(words, 1, 2))


_KINDS = {
    "process": _process,
    "program": _program,
    "time": _time,
    "sample_bytes": _rate,
    "class": _class,
    "large": _large,
    "heap": _heap,
    "sample": _sample,
    "page_bytes": _page_size,
    "pinned": _stratum,
    "tracked": _tracked,
    "survivor": _survivor,
    "freed": _freed,
    "event": _event,
    "event_of": _event_of,
    "allocated": _counted,
    "sites": _sites,
    "site": _site,
} | dict.fromkeys(_FIGURES, _figure)


def is_snapshot(start: bytes) -> bool:
    """Whether a file with this beginning is a snapshot, or contains one."""
    return start.startswith(_MAGIC.encode()) or blackbox.is_box(start)


def parse(text: str, name: str = "") -> Snapshot:
    """The snapshot; `name` is what messages call its file."""
    lines = lines_of(text)
    if not lines or lines[0].split()[:1] != [_MAGIC]:
        raise Damaged(name, "not a snapshot of hakmem: its first line does not say so")
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
                return plausible.snapshot(snapshot)
    except (ValueError, IndexError):
        raise Damaged(name, f"line {number} can't be read: {lines[number - 1][:80]}") from None
    raise Damaged(name, "the snapshot is cut short: it has no end line (its writer was killed, or the disk was full)")


def of_bytes(data: bytes, name: str = "") -> Snapshot:
    """The snapshot in a file; the newest one if it is a black box."""
    if blackbox.is_box(data):
        data = blackbox.parse(data, name).newest.text
    return parse(data.decode(errors="surrogateescape"), name)


def read(path: str) -> Snapshot:
    try:
        return of_bytes(Path(path).read_bytes(), path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def text_of(snapshot: Snapshot) -> str:
    """The file that hakmem itself would write."""
    lines = [f"{_MAGIC} 1", f"process {snapshot.process}", f"time {snapshot.time}", f"sample_bytes {snapshot.rate}"]
    if snapshot.program:
        lines.append(f"program {snapshot.program:#x}")
    for each in snapshot.classes:
        words = (each.block_size, each.slab_size, each.slabs, each.live, each.cached, each.free, each.remote)
        lines.append("class " + " ".join(map(str, words)))
    lines.append(f"large {snapshot.large_blocks} {snapshot.large_bytes}")
    lines += [f"{kind} {figure}" for kind in _FIGURES if (figure := getattr(snapshot, kind))]
    lines += [f"heap {tag} {name or '-'}" for tag, name in snapshot.heap_names.items()]
    for each in snapshot.samples:
        chance = round(each.chance * _CERTAIN) % _CERTAIN
        lines.append(
            f"sample {each.address:#x} {each.size} {each.asked} {chance} {each.site} {each.tag} "
            f"{round(10 * each.age)} {each.quiet:d} {each.large:d}"
        )
    if snapshot.page_size:
        lines.append(f"page_bytes {snapshot.page_size}")
    for slab in snapshot.tracked:
        words = (slab.block_size, slab.quarter, slab.live, slab.waste, f"{slab.pages:#x}")
        lines.append(f"tracked {slab.address:#x} " + " ".join(map(str, words)))
        lines += [f"survivor {s.block} {s.site} {round(10 * s.age)} {s.quiet:d}" for s in slab.survivors]
        lines += [f"freed {each.page} {each.site} {each.blocks}" for each in slab.freed]
    for stratum in snapshot.strata:
        words = (stratum.block_size, stratum.quarter, stratum.slabs, stratum.tracked)
        lines.append("pinned " + " ".join(map(str, (*words, stratum.pages, stratum.waste, stratum.idle))))
    lines += [
        f"allocated {group} {each.block_size} {each.objects} {each.bytes}" for group, each in snapshot.counted.items()
    ]
    lines += [f"event {site} {each.events} {each.objects} {each.bytes}" for site, each in snapshot.allocated.items()]
    lines += [
        f"event_of {site} {group} {each.events} {each.objects} {each.bytes}"
        for (site, group), each in snapshot.events.items()
    ]
    lines.append(f"sites {max(snapshot.sites, default=0)} {snapshot.checked} {snapshot.wrong}")
    lines += [f"site {number} {parent:d} {address:#x}" for number, (parent, address) in snapshot.sites.items()]
    for each in snapshot.mappings:
        span = f"{each.start:08x}-{each.end:08x} r-xp {each.offset:08x} 00:00 0"
        lines.append(f"mapping {each.build_id or '-'} {span:<72} {each.path}".rstrip())
    return "\n".join([*lines, "end", ""])


def write(snapshot: Snapshot, path: Path) -> None:
    path.write_bytes(text_of(snapshot).encode(errors="surrogateescape"))

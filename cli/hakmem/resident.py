"""One table that sums to a process's resident set, and a verdict: what to do about it.

The kernel's smaps shows how much of each mapping is resident, its pagemap which pages of the heap are, and the heap's own records what
lies on each page. So each resident byte is in exactly one row. Changes between these readings have a row, too.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hakmem import elsewhere, outside_pinned
from hakmem.groups import PROC, folders
from hakmem.memory import Memory, Process, Unreadable, whole
from hakmem.names import kernel_lines
from hakmem.outside import Heap, Reader
from hakmem.pages import Contents, Mapped, Pagemap, Pages, contents, mappings
from hakmem.render import byte_text
from hakmem.snapshots import Snapshot

# The groups of rows, which the verdict compares.
PROGRAM, CACHE, FRAGMENTATION, HUGE, META, OTHER = (
    "program",
    "cache",
    "fragmentation",
    "huge pages",
    "metadata",
    "not the heap",
)
PAGE_CACHE = "page cache"

_EXCESS = 0.25  # of the resident set; from here on an excess gets a verdict
_ASKED_MOST = 2**32 - 1  # what a record says of this and of more bytes
_SAMPLES = 10  # the least number of samples of a class to estimate the bytes requested
_ZEROS_READ = 4096  # pages
_NEAR_SHARE, _NEAR_MOST = 4, 2 << 30  # of a limit, and bytes: nearer, the library gives back idle memory (docs/containers.md)
_LIMITS_MOST = 1 << 60  # version 1 expresses no limit by a number above this
_COUNTED = "of what was counted while it was armed"
_REST = "the rest of the resident set"  # for sources that do not show mappings


@dataclass
class Row:
    key: str
    title: str
    group: str
    resident: int | None  # bytes; None: not known
    counted: int | None = None  # bytes by the heap's records, resident or not


@dataclass
class Verdict:
    kind: str
    text: str
    beside: str = ""  # the part of the text that is about the control group

    @property
    def brief(self) -> str:
        """Without what is the same for all processes of a control group."""
        return self.text.removesuffix(f"; {self.beside}") if self.beside else self.text


@dataclass
class Table:
    process: int
    rows: list[Row] = field(default_factory=list)
    total: int | None = None  # the resident set by smaps
    swapped: int | None = None
    group_total: int | None = None  # of the control group: all memory, then page cache
    group_cache: int | None = None
    group_limit: int | None = None
    verdict: Verdict = field(default_factory=lambda: Verdict(PROGRAM, ""))
    window_age: float | None = None  # as in a snapshot

    def of(self, key: str) -> int:
        return sum(row.resident or 0 for row in self.rows if row.key == key)

    def in_group(self, group: str) -> int:
        return sum(row.resident or 0 for row in self.rows if row.group == group)


# ---- The heap's part ----


@dataclass
class _Heap:
    """The bytes of the heap: the resident ones, or all."""

    live: np.ndarray  # by class; large blocks last
    cached: int = 0
    waiting: int = 0
    free: int = 0
    spans: int = 0
    overshoot: int = 0
    meta: int = 0


def _sum(reader: Reader, on: Contents, taken: np.ndarray, zero: dict[str, float], huge: np.ndarray) -> _Heap:
    """Sums over the `taken` pages; `zero` is the share of each kind's huge pages that was never written."""
    page, classes = reader.memory.page_size, len(reader.classes)
    kind = {name: (on.kind == reader.value(f"kind.{name}")) & taken for name in ("slab", "large", "free", "cached", "meta")}
    kind["free"] |= kind["cached"]  # by a thread, for its next large block
    slab, large = kind["slab"], kind["large"] & ~on.past
    out = np.where(slab, np.clip(page - on.free - on.waiting - on.cached, 0, page), 0)
    live = np.bincount(np.minimum(on.size_class[slab], classes), out[slab], classes + 1).astype(np.int64)
    live[classes] += page * int(large.sum())
    found = _Heap(live)
    found.cached, found.waiting = (int(np.minimum(each, page)[slab].sum()) for each in (on.cached, on.waiting))
    found.free = page * int(slab.sum()) - int(out[slab].sum()) - found.cached - found.waiting
    found.free += page * int((kind["large"] & on.past).sum())
    found.spans = page * int((kind["free"] & on.dirty).sum())
    found.overshoot = page * int((kind["free"] & ~on.dirty).sum())
    known = slab | kind["large"] | kind["free"]
    found.meta = page * int((taken & ~known).sum())
    for name, pages in (("slab", slab), ("large", large)):
        never = round(zero.get(name, 0.0) * int((pages & huge).sum())) * page
        if name == "large":
            never = min(never, int(live[classes]))
            live[classes] -= never
        else:
            never = min(never, found.free)  # in slabs: pages with blocks that were never allocated
            found.free -= never
        found.overshoot += never
    return found


def _zeros(reader: Reader, heap: Heap, on: Contents, pages: Pages) -> dict[str, float]:
    """For huge pages of slabs and of large blocks, the share of small pages in them that are all zero: found by reading some."""
    page, draw = reader.memory.page_size, np.random.default_rng(0)
    found = {}
    for name in ("slab", "large"):
        numbers = np.flatnonzero(pages.huge & pages.present & (on.kind == reader.value(f"kind.{name}")))
        if len(numbers) > _ZEROS_READ:
            numbers = draw.choice(numbers, _ZEROS_READ, replace=False)
        if len(numbers):
            with contextlib.suppress(Unreadable):  # some pages are gone
                read = reader.memory.gather(
                    np.uint64(heap.base) + numbers[:, None].astype(np.uint64) * np.uint64(page), [page]
                )
                found[name] = float((~read.view(np.uint64).any(axis=1)).mean())
    return found


def _asked_shares(reader: Reader, taken: Snapshot) -> list[float]:
    """The share of live bytes that was requested, by class, then of large blocks: by samples; without them as if half the step to the class
    below, or half a page, were unused."""
    asked: defaultdict[int, float] = defaultdict(float)  # bytes that the samples stand for
    held: defaultdict[int, float] = defaultdict(float)
    count: Counter[int] = Counter()
    sizes = {each.size for each in reader.classes}
    for sample in taken.samples:
        key = 0 if sample.large or sample.size not in sizes else sample.size
        is_beyond = sample.asked == _ASKED_MOST
        asked[key] += (sample.size if is_beyond else min(sample.asked, sample.size)) / sample.chance
        held[key] += sample.weight
        count[key] += 1
    shares, below = [], 0
    for each in reader.classes:
        half = 1 - (each.size - below) / 2 / each.size if each.size else 1.0
        shares.append(asked[each.size] / held[each.size] if each.size and count[each.size] >= _SAMPLES else half)
        below = each.size
    if count[0] >= _SAMPLES:
        return [*shares, asked[0] / held[0]]
    large = taken.large_blocks * reader.memory.page_size / 2 / taken.large_bytes if taken.large_bytes else 0.0
    return [*shares, 1 - min(large, 0.5)]


_HEAP_ROWS = (
    ("asked", "live: requested by the program", PROGRAM),
    ("rounding", "live: rounding up to block sizes", FRAGMENTATION),
    ("bins", "cached in threads' bins", CACHE),
    ("remote", "freed by other threads, not collected yet", CACHE),
    ("spans", "free spans, not given back yet", CACHE),
    ("slab_free", "free blocks in slabs, mostly on pages with live ones", FRAGMENTATION),
    ("huge", "never written, resident only through huge pages", HUGE),
    ("meta", "hakmem's own records", META),
)


def _heap_rows(live: list[int], shares: list[float], rest: tuple[int, ...]) -> list[int]:
    asked = round(sum(bytes_ * share for bytes_, share in zip(live, shares)))
    return [asked, sum(live) - asked, *rest]


# ---- The other mappings ----


def own_records(reader: Reader, heap: Heap) -> list[tuple[int, int, str]]:
    """hakmem's own records outside the zones, and what they are; their mappings may contain other pages too."""
    names = reader.names
    found = [(start, end, "of tracked slabs") for start, end in outside_pinned.records(reader, heap)]
    size, at = names.field("heap")[1], names.field("heap.bin_at_class")[0]
    word, bin_size = reader.value("heap.word_bytes"), names.field("bin")[1]
    for address in heap.heaps:
        found.append((address, address + size, "of a heap"))
        places = reader.memory.read(address + at, 2 * len(reader.classes)).view(np.uint16)
        first, last = int(places.min()), int(places.max())
        reserve = int(np.diff(np.sort(places)).max(initial=0))  # the room that a bin's entries may take, below the bin
        found.append((address + max(0, first - reserve) * word, address + last * word + bin_size, "of a heap's bins"))
        if reader.secure:
            quarantine = names.number(address + names.field("heap.quarantine")[0])
            found.append((quarantine, quarantine + names.field("quarantine")[1], "of a quarantine"))
    return found + _site_records(reader)


def _site_records(reader: Reader) -> list[tuple[int, int, str]]:
    """The records of sites, and of counts by site while the process was armed, which older libraries do not have."""
    names, chunk, found = reader.names, reader.value("site.chunk"), []
    chunks = -(-min(names.number(names.place("site.count"), 4), reader.value("site.most")) // chunk)
    for place, record, what in (("site.chunks", "site", "of sites"), ("event.chunks", "event", _COUNTED)):
        for index in range(chunks if place in names.places else 0):
            address = names.number(names.place(place) + 8 * index)
            if address:
                found.append((address, address + chunk * names.field(record)[1], what))
    rows = names.number(names.place("event.rows")) if "event.rows" in names.places else 0
    if rows:
        found.append((rows, rows + reader.value("event.rows_most") * names.field("event_row")[1], _COUNTED))
    return found


def _overlaps(mapped: Mapped, ranges: list[tuple[int, int]]) -> bool:
    return any(start < mapped.area.end and mapped.area.start < end for start, end in ranges)


def _resident_in(mapped: Mapped, ranges: list[tuple[int, int]], pagemap: Pagemap, page: int) -> int:
    """The resident bytes of the mapping's pages that the ranges touch."""
    pages = pagemap.pages(mapped.area.start, mapped.area.size).present
    ours = np.zeros(len(pages), bool)
    for start, end in ranges:
        first = max(0, start - mapped.area.start) // page
        last = -(-max(0, min(end, mapped.area.end) - mapped.area.start) // page)
        ours[first:last] = True
    return min(mapped.resident, page * int((pages & ours).sum()))


# ---- The verdict ----


def _decay_text(reader: Reader, heap: Heap) -> str:
    decay = reader.names.word("options", "options.decay_ms")
    if decay >= 1 << 63:
        return "they are never given back (HAKMEM_DECAY_MS=-1)"
    last, now = reader.names.number(reader.names.place("purge.last_step_ms")), reader.memory.now_ms()
    cold = (heap.superslabs["free"] & heap.superslabs["dirty"] & ~heap.superslabs["cold"]).any()
    left = max(0, last + decay // 2 - (now or last)) + (decay // 2 if cold else 0)
    return f"they are given back within {max(left, 100) / 1000:.1f} s (HAKMEM_DECAY_MS)"


def _cache_text(table: Table, decay: str) -> str:
    bins, remote, spans = (table.of(key) for key in ("bins", "remote", "spans"))
    if spans >= max(bins, remote):
        return f"{byte_text(spans)} are free spans: {decay}"
    if bins >= remote:
        return (
            f"{byte_text(bins)} are in threads' bins, for reuse (HAKMEM_BIN_KB, HAKMEM_BINS_EXTRA_KB make them smaller)"
        )
    return f"{byte_text(remote)} were freed by other threads and wait for their owners, which make no calls to the allocator"


def judge(table: Table, decay: str = "") -> Verdict:
    """Names the largest excess over what was requested, if it is large enough; otherwise the program holds the memory."""
    groups = {group: table.in_group(group) for group in (CACHE, FRAGMENTATION, HUGE, META, OTHER)}
    kind = max(groups, key=groups.get)
    resident = table.total or sum(row.resident or 0 for row in table.rows)
    asked = table.in_group(PROGRAM)
    cached = _page_cache_text(table, resident)
    if cached and table.group_limit and _is_near(table.group_total or 0, table.group_limit):
        return Verdict(PAGE_CACHE, cached)
    found = _judge_parts(table, kind, groups, resident, asked, decay)
    return replace(found, text=f"{found.text}; {cached}", beside=cached) if cached else found


def _page_cache_text(table: Table, resident: int) -> str:
    """A remark if the control group is mostly page cache; otherwise empty."""
    if not table.group_cache or table.group_cache <= resident or table.group_cache * 2 <= (table.group_total or 0):
        return ""
    cache, all_of = byte_text(table.group_cache), byte_text(table.group_total or 0)
    return f"{cache} of the {all_of} of its control group are page cache, which the kernel drops when memory is needed"


def _judge_parts(table: Table, kind: str, groups: dict[str, int], resident: int, asked: int, decay: str) -> Verdict:
    if groups[kind] < asked and groups[kind] < _EXCESS * resident:
        return Verdict(PROGRAM, f"the program holds it: {byte_text(asked)} are live, as requested")
    if kind == CACHE:
        return Verdict(kind, f"cache: {_cache_text(table, decay)}")
    if kind == FRAGMENTATION:
        free, rounding = table.of("slab_free"), table.of("rounding")
        text = f"{byte_text(free)} are free blocks on pages that a few live ones keep, {byte_text(rounding)} are rounding"
        return Verdict(kind, f"fragmentation: {text}")
    if kind == HUGE:
        return Verdict(
            kind,
            f"huge pages: {byte_text(groups[kind])} of them were never written to (HAKMEM_HUGE=0 uses small pages)",
        )
    if kind == META:
        return Verdict(kind, f"hakmem's own records: {byte_text(groups[kind])}")
    largest = max((row for row in table.rows if row.group == OTHER), key=lambda row: row.resident or 0)
    part = _REST if largest.key == "others" else f"of which {byte_text(largest.resident or 0)} are {largest.title}"
    return Verdict(kind, f"not the heap: {byte_text(groups[kind])}, {part}")


# ---- Its control group ----


@dataclass(frozen=True)
class Group:
    """A control group of a process: what it holds, how much of that is page cache, and its limit, if any."""

    total: int | None = None
    cache: int | None = None
    limit: int | None = None

    @property
    def is_near(self) -> bool:
        return self.total is not None and self.limit is not None and _is_near(self.total, self.limit)


def _is_near(total: int, limit: int) -> bool:
    return limit - total <= min(limit // _NEAR_SHARE, _NEAR_MOST)


def _numbers(file: Path) -> dict[str, int]:
    return {name: int(count) for name, count in (line.split() for line in kernel_lines(file))}


def _limit(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):  # "max" is not a number
        limit = int(kernel_lines(file)[0])
        return limit if limit < _LIMITS_MOST else None
    return None


def _group(folder: Path, unified: bool) -> Group:
    """Reads a group; raises OSError if there is none, as at the root."""
    total = int(kernel_lines(folder / ("memory.current" if unified else "memory.usage_in_bytes"))[0])
    limits = [_limit(folder / name) for name in (("memory.max", "memory.high") if unified else ("memory.limit_in_bytes",))]
    limit, cache = min((each for each in limits if each is not None), default=None), None
    with contextlib.suppress(OSError, ValueError, KeyError):
        counts = _numbers(folder / "memory.stat")
        names = ("file", "shmem") if unified else ("total_cache", "total_shmem")
        cache = counts[names[0]] - counts.get(names[1], 0)
    return Group(total, cache, limit)


def control_group(process: int, proc: Path = PROC) -> Group:
    """The innermost of the process's groups that is near its limit, or else the innermost one."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for folder, outermost, unified in folders(process, "memory", proc):
            while True:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    group = _group(folder, unified)
                    if unified or folder != outermost or group.limit is not None:  # in version 1 the whole machine is a group
                        found.append(group)
                if folder == outermost:
                    break
                folder = folder.parent
    return next((group for group in found if group.is_near), found[0] if found else Group())


# ---- The whole ----


def _process_table(reader: Reader, memory: Process, pinned: bool) -> tuple[Table, Snapshot]:
    table = Table(memory.process)
    pagemap = Pagemap(memory.folder, memory.page_size)
    try:
        heap = reader.heap(with_entries=True)
        pages = pagemap.pages(heap.base, heap.size)
        mapped = elsewhere.apart(mappings(memory.folder), memory, pagemap)
        taken = reader.snapshot(heap, pinned)
        on = contents(reader, heap)
        zeros = _zeros(reader, heap, on, pages) if pages.huge.any() else {}
        resident = _sum(reader, on, pages.present, zeros, pages.huge)
        region = [(heap.base, heap.base + heap.size)]
        zones = [
            (start, start + -(-len(heap.units) // each) * stride)
            for start, stride, each in map(reader.names.zone, reader.names.zones)
        ]
        own, others, meta, blocks = [each[:2] for each in own_records(reader, heap)], [], resident.meta, 0
        for each in mapped:
            if _overlaps(each, region):
                blocks += each.resident
            elif _overlaps(each, zones):
                meta += each.resident
            elif _overlaps(each, own):
                ours = _resident_in(each, own, pagemap, memory.page_size)
                meta += ours
                others.append(Mapped(each.area, each.resident - ours, each.anonymous - ours, 0, 0))
            else:
                others.append(each)
    finally:
        pagemap.close()
    shares = _asked_shares(reader, taken)
    rest = (resident.cached, resident.waiting, resident.spans, resident.free, resident.overshoot, meta)
    counted = _counted(reader, heap, taken, shares)
    rows = _heap_rows(resident.live.tolist(), shares, rest)
    for (key, title, group), count, all_of in zip(_HEAP_ROWS, rows, counted):
        table.rows.append(Row(key, title, group, count, all_of))
    table.rows += [Row(key, title, OTHER, count) for key, title, count in elsewhere.rows(others, memory.stack_pointers())]
    seen = sum(row.resident or 0 for row in table.rows if row.key != "meta" and row.group != OTHER) + resident.meta
    if blocks != seen:
        table.rows.append(
            Row("moved", "came and went while this was read", CACHE if blocks > seen else PROGRAM, blocks - seen)
        )
    table.total, table.swapped = sum(each.resident for each in mapped), sum(each.swapped for each in mapped)
    group = control_group(memory.process)
    table.group_total, table.group_cache, table.group_limit = group.total, group.cache, group.limit
    table.verdict = judge(table, _decay_text(reader, heap))
    return table, taken


def _counted(reader: Reader, heap: Heap, taken: Snapshot, shares: list[float]) -> list[int | None]:
    """The same rows by the heap's records, resident or not."""
    of_size = {each.block_size: each for each in taken.classes}
    live = [of_size[each.size].live * each.size if each.size in of_size else 0 for each in reader.classes]
    cached, remote = (
        sum(getattr(each, name) * each.block_size for each in taken.classes) for name in ("cached", "remote")
    )
    blocks = sum(each.slabs * each.slab_size for each in taken.classes)
    free = blocks - sum(live) - cached - remote
    words = (heap.superslabs["free"] & heap.superslabs["dirty"]).view(np.uint32)
    spare = heap.units[heap.units["kind"] == reader.value("kind.cached")]
    spans = (int(np.bitwise_count(words).sum()) + int(spare["units"].sum())) * heap.unit_bytes
    return [*_heap_rows([*live, taken.large_bytes], shares, (cached, remote, spans, free)), None, None]


def of_memory(memory: Memory, pinned: bool = False) -> tuple[Table, Snapshot]:
    """The table of a process or a core; a core's pages are not known. The snapshot includes who keeps pages if `pinned`."""
    with whole(memory):
        reader = Reader(memory)
        if isinstance(memory, Process):
            return _process_table(reader, memory, pinned)
        heap = reader.heap()
        taken = reader.snapshot(heap, pinned)
        counted = _counted(reader, heap, taken, _asked_shares(reader, taken))
    table = Table(memory.process)
    for (key, title, group), count in zip(_HEAP_ROWS, counted):
        table.rows.append(Row(key, title, group, None, count))
    return table, taken


def of_snapshot(taken: Snapshot) -> Table:
    """The table of a snapshot's file, without pages and other mappings. A black box also has the resident set, and so the rest of it."""
    live, cached, remote = (
        sum(getattr(each, name) * each.block_size for each in taken.classes) for name in ("live", "cached", "remote")
    )
    free = sum(each.slabs * each.slab_size for each in taken.classes) - live - cached - remote
    rows = {"asked": live + taken.large_bytes, "bins": cached, "remote": remote, "slab_free": free}
    if taken.resident:
        rows |= {"spans": taken.free_spans, "meta": taken.own}
    table = Table(taken.process, window_age=taken.window_age)
    for key, title, group in _HEAP_ROWS:
        table.rows.append(Row(key, title if key != "asked" else "live", group, None, rows.get(key)))
    if taken.resident:
        table.total, table.group_total = taken.resident, taken.group or None
        _judge_counted(table)
    return table


def _judge_counted(table: Table) -> None:
    """Judges as if all counted memory were resident; what is not resident makes the rest look smaller than it is."""
    rest = table.total - sum(row.counted or 0 for row in table.rows)
    others = Row("others", f"not the heap: {_REST}", OTHER, None, max(0, rest))
    table.rows.append(others)
    if rest < 0:
        table.rows.append(Row("absent", "counted but not resident", PROGRAM, None, rest))
    as_if = Table(table.process, [Row(row.key, row.title, row.group, row.counted) for row in table.rows], table.total)
    table.verdict = judge(as_if, "they are given back within HAKMEM_DECAY_MS, or never if that is -1")

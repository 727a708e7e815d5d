"""Classifies the mappings of a process outside the heap: stacks, libraries, other allocators' memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hakmem.memory import PT_LOAD, Memory
from hakmem.names import printable
from hakmem.pages import Mapped, Pagemap

_GUARD_MOST = 64 << 10  # bytes; a page of any size
_ARENA = 64 << 20  # bytes of addresses that each arena of glibc's malloc takes
_SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")  # names that are not files: the memory goes when nobody maps it


# ---- Writable data of programs and libraries ----


def _follows(each: Mapped, before: Mapped | None) -> bool:
    """Whether it may be the memory of a program or library beyond its file."""
    return (
        before is not None
        and before.area.end == each.area.start
        and before.area.path.startswith("/")
        and not each.area.path
        and "w" in each.area.flags
        and "w" in before.area.flags
    )


def _end(memory: Memory, start: int) -> int | None:
    """The end of the memory of the program or library at `start`; None if its headers can't be read."""
    loaded = [each for each in memory.segments_at(start) if each[0] == PT_LOAD]
    if not loaded:
        return None
    first = min(address - offset for _, _, offset, address, *_ in loaded)
    end = start - first + max(address + size for _, _, _, address, _, _, size, _ in loaded)
    return -(-end // memory.page_size) * memory.page_size


def apart(mapped: list[Mapped], memory: Memory, pagemap: Pagemap) -> list[Mapped]:
    """The mappings. Where the kernel has merged a library's data with other memory right above it, these are two."""
    return list(_apart(mapped, memory, pagemap))


def _apart(mapped: list[Mapped], memory: Memory, pagemap: Pagemap) -> Iterator[Mapped]:
    starts: dict[str, int] = {}  # of files: where each was last mapped
    before = None
    for each in mapped:
        area = each.area
        if area.offset == 0:
            starts[area.path] = area.start
        end = None
        if _follows(each, before) and before.area.path in starts:
            end = _end(memory, starts[before.area.path])
        before = each
        if end is None or not area.start <= end < area.end:
            yield each
            continue
        resident = memory.page_size * int(pagemap.pages(area.start, end - area.start).present.sum())
        resident = min(resident, each.resident)
        yield Mapped(replace(area, end=end), resident, min(resident, each.anonymous), 0, 0)
        rest = replace(area, start=end)
        yield Mapped(rest, each.resident - resident, max(0, each.anonymous - resident), each.huge, each.swapped)


# ---- Stacks ----


def _guarded(each: Mapped, before: Mapped | None) -> bool:
    """Whether it is mapped as the C library maps a thread's stack, right above inaccessible pages. An arena of glibc's malloc may lie so
    too, above the unused end of another arena, but arenas begin at multiples of their size."""
    return (
        before is not None
        and before.area.end == each.area.start
        and not (before.area.path or each.area.path)
        and before.area.flags.startswith("---")
        and each.area.flags.startswith("rw-p")
        and before.area.size <= _GUARD_MOST
        and each.area.start % _ARENA != 0
    )


def _stacks(others: list[Mapped], pointers: list[int | None]) -> set[int]:
    """The starts of the mappings that are thread stacks: found by stack pointer or, for threads without a known one, by a guard below.
    If more mappings have a guard, those of the most common size are taken, since most threads have the same."""
    known = [pointer for pointer in pointers if pointer is not None]
    found, guarded = set(), {}
    before = None
    for each in others:
        if not each.area.path.startswith("/") and any(each.area.start <= pointer < each.area.end for pointer in known):
            found.add(each.area.start)
        elif _guarded(each, before):
            guarded[each.area.start] = before.area.size + each.area.size
        before = each
    usual = Counter(guarded.values())
    likely = sorted(guarded, key=lambda start: -usual[guarded[start]])
    return found.union(likely[: pointers.count(None)])


# ---- The rows ----


def rows(others: list[Mapped], stack_pointers: list[int | None]) -> list[tuple[str, str, int]]:
    """The keys, titles and resident bytes of the rows, the largest first."""
    found: dict[tuple[str, str], int] = {}
    stacks = _stacks(others, stack_pointers)
    before = None

    def add(key: str, title: str, count: int) -> None:
        found[key, title] = found.get((key, title), 0) + count

    for each in others:
        path, flags = each.area.path, each.area.flags
        if path.startswith("[stack") or each.area.start in stacks:
            add("stacks", "thread stacks", each.resident)
        elif path.startswith(_SHARED) or (flags[3:4] == "s" and not path.startswith("/")):
            add("shared", "shared memory", each.resident)
        elif path.startswith("/"):
            add("data", "written data of programs and libraries", each.anonymous)
            add("files", "files: code and mapped data", each.resident - each.anonymous)
        elif _follows(each, before):
            add("data", "written data of programs and libraries", each.resident)
        elif path == "[heap]":
            add("brk", "brk heap of another allocator", each.resident)
        elif path.startswith("[anon"):
            add("named", f"anonymous memory named {printable(path[1:-1].partition(':')[2])}", each.resident)
        elif path:
            add("files", "files: code and mapped data", each.resident)
        else:
            add("anonymous", "other anonymous mappings", each.resident)
        before = each
    largest_first = sorted(found.items(), key=lambda item: -item[1])
    return [(key, title, count) for (key, title), count in largest_first if count]

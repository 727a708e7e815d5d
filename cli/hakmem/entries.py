"""A snapshot in the form of other tools' formats: values by stack. Each type of value has the same sum as in the snapshot's tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hakmem import ages, allocations, pinned
from hakmem.estimates import NOT_SAMPLED, UNKNOWN, Line, estimate
from hakmem.snapshots import Sample, Snapshot
from hakmem.symbols import Frame, Symbols

SPACE = "inuse_space"
LIVE = {"inuse_objects": "count", SPACE: "bytes", "samples": "count"}
PINNED = {"pinned_sole": "bytes", "pinned_shared": "bytes"}
ALLOCATED = {"alloc_objects": "count", "alloc_space": "bytes"}


@dataclass
class Entry:
    values: dict[str, int]  # by type
    frames: list[Frame]  # the innermost first; if there are none, `name` says why
    name: str = UNKNOWN
    labels: dict[str, tuple[int | str, str]] = field(default_factory=dict)  # numbers and their units, or texts


def types(snapshot: Snapshot) -> dict[str, str]:
    """The types of values that the snapshot has, and their units."""
    return LIVE | (PINNED if snapshot.strata else {}) | (ALLOCATED if snapshot.counted or snapshot.allocated else {})


def _labels(snapshot: Snapshot, size: int, age: int, tag: int) -> dict[str, tuple[int | str, str]]:
    labels: dict[str, tuple[int | str, str]] = {"bytes": (size, "bytes"), "age": (ages.FROM[age], "seconds")}
    if tag:
        labels["tag"] = snapshot.tag_text(tag) if tag in snapshot.heap_names else tag, ""
    return labels


def _entry(snapshot: Snapshot, line: Line, symbols: Symbols) -> Entry:
    values = dict(zip(LIVE, (line.objects, line.bytes, line.samples)))
    if not isinstance(line.key, tuple):
        return Entry(values, [], str(line.key))
    site, *label_keys = line.key
    return Entry(values, symbols.stack(site), labels=_labels(snapshot, *label_keys))


def _live(snapshot: Snapshot, symbols: Symbols) -> Iterator[Entry]:
    def key(sample: Sample) -> tuple[int, int, int, int]:
        return symbols.outside(sample.site), sample.size, ages.class_of(sample), sample.tag

    lines = estimate(snapshot, key)
    for line in lines:
        yield _entry(snapshot, line, symbols)


def _pinned(snapshot: Snapshot, symbols: Symbols) -> Iterator[Entry]:
    """These are separate entries, since records in tracked slabs have neither size nor tag."""
    lines = pinned.estimate(snapshot, symbols.outside).lines
    for line in lines:
        values = dict(zip(PINNED, (line.sole, line.shared)))
        if line.key == pinned.NOT_TRACKED:
            yield Entry(values, [], pinned.NOT_TRACKED)
        else:
            yield Entry(values, symbols.stack(line.key))


def _allocated(snapshot: Snapshot, symbols: Symbols) -> Iterator[Entry]:
    sums = allocations.by_key(snapshot, symbols.outside)
    for site, each in sums.items():
        values = dict(zip(ALLOCATED, (each.objects, each.bytes)))
        yield Entry(values, [], NOT_SAMPLED) if site == NOT_SAMPLED else Entry(values, symbols.stack(site))


def entries(snapshot: Snapshot, symbols: Symbols) -> Iterator[Entry]:
    """All entries. The live ones are labelled with the bytes of their blocks, the lower bound of their age class, and their
    thread's tag or the name of their heap."""
    yield from _live(snapshot, symbols)
    if snapshot.strata:
        yield from _pinned(snapshot, symbols)
    yield from _allocated(snapshot, symbols)

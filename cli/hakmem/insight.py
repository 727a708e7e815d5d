"""Profiles and differences as tables and JSON."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from hakmem import allocations, pinned
from hakmem.calls import Called, Calls, told_apart
from hakmem.estimates import NOT_SAMPLED, UNKNOWN, Line, estimate
from hakmem.names import printable
from hakmem.pinned import NOT_TRACKED, Pinned, PinnedLine
from hakmem.render import byte_text

if TYPE_CHECKING:  # these load packages that other commands need not wait for
    from hakmem.diff import Change, Difference
    from hakmem.allocations import Sums
    from hakmem.snapshots import Sample, Snapshot
    from hakmem.symbols import Symbols

SITE, FUNCTION, TAG = "site", "function", "tag"
_FEWEST_CHECKED = 10


@dataclass
class Row(Called):
    """A line of a profile, and the calls shown with it."""

    line: Line
    calls: Calls


@dataclass
class PinnedRow(Called):
    line: PinnedLine
    calls: Calls


def _named(name: Hashable) -> Calls:
    """In place of a stack."""
    return Calls([(str(name), "")])


def _calls(symbols: Symbols, site: int) -> Calls:
    calls = symbols.calls(site)
    return calls if calls.frames else _named(UNKNOWN)


def _key_of_site(symbols: Symbols, by: str) -> Callable[[int], Hashable]:
    if by == SITE:
        return symbols.outside
    names: dict[int, str] = {}

    def function(number: int) -> str:
        site = symbols.outside(number)
        if site not in names:
            frames = symbols.wanting(site)
            names[site] = frames[0].name if frames else UNKNOWN
        return names[site]

    return function


def _key_of(symbols: Symbols, by: str) -> Callable[[Sample], Hashable]:
    if by == TAG:
        return lambda sample: sample.tag
    of_site = _key_of_site(symbols, by)
    return lambda sample: of_site(sample.site)


def rows(snapshot: Snapshot, symbols: Symbols, by: str, top: int | None = None) -> tuple[list[Row], int]:
    """The largest lines by site, function or tag, and the number of all lines."""
    lines = estimate(snapshot, _key_of(symbols, by))
    shown = lines[:top]

    def calls(line: Line) -> Calls:
        if line.key == NOT_SAMPLED or by == FUNCTION:
            return _named(line.key)
        return _named(snapshot.tag_text(line.key)) if by == TAG else _calls(symbols, line.key)

    return [Row(line, calls(line)) for line in shown], len(lines)


def pinned_rows(
    snapshot: Snapshot, symbols: Symbols, by: str, top: int | None = None
) -> tuple[list[PinnedRow], Pinned] | None:
    """The largest lines of who keeps pages; None by tag, which these records do not have, or if the snapshot has no such records."""
    if by == TAG or not snapshot.strata:
        return None
    whole = pinned.estimate(snapshot, _key_of_site(symbols, by))
    shown = whole.lines[:top]

    def calls(line: PinnedLine) -> Calls:
        return _named(line.key) if line.key == NOT_TRACKED or by == FUNCTION else _calls(symbols, line.key)

    return [PinnedRow(line, calls(line)) for line in shown], whole


@dataclass
class AllocatedRow(Called):
    """What was allocated under one key, and the calls shown with it."""

    sums: Sums
    calls: Calls


def allocated_rows(snapshot: Snapshot, symbols: Symbols, by: str) -> list[AllocatedRow]:
    """Who allocates, the largest first. All sum to what was counted. Empty if nothing was, and by tag, which events do not have."""
    if by == TAG:
        return []
    sums = allocations.by_key(snapshot, _key_of_site(symbols, by))

    def calls(key: Hashable) -> Calls:
        return _named(key) if by == FUNCTION or key == NOT_SAMPLED else _calls(symbols, key)

    return [AllocatedRow(each, calls(key)) for key, each in sums.items()]


def age_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def window_text(age: float) -> str:
    return f"from its window, {age:.1f} s old, since it may not be traced: who keeps pages and who allocates is not known"


def _checked_text(snapshot: Snapshot) -> str:
    """How many samples may have another's stack; nothing if too few were checked to say."""
    if snapshot.checked < _FEWEST_CHECKED:
        return ""
    return f"of {snapshot.checked:,} samples recognised by their innermost calls, at most {snapshot.wrong:,} have the wrong call stack"


def heading(snapshot: Snapshot, name: str = "") -> list[str]:
    """The totals, and how well they are known. The name is the process's; if it is not known, that of its program is shown."""
    program = snapshot.program_mapping
    name = name or (printable(program.name) if program else "")
    when = datetime.datetime.fromtimestamp(snapshot.time, datetime.timezone.utc)
    quiet = sum(sample.quiet for sample in snapshot.samples)
    lines = [
        f"{name + ', ' if name else ''}process {snapshot.process}, {when:%Y-%m-%d %H:%M:%S} UTC",
        f"live {byte_text(snapshot.live_bytes)}, including {byte_text(snapshot.large_bytes)} "
        f"in {snapshot.large_blocks:,} large blocks",
    ]
    if snapshot.window_age is not None:
        lines.append(window_text(snapshot.window_age))
    if snapshot.moving:
        lines.append(
            f"{snapshot.moving:,} of {snapshot.slabs:,} slabs changed while they were read: their counts are approximate"
        )
    if not snapshot.rate:
        return [*lines, "no blocks were sampled (HAKMEM_INSIGHT=0, or the secure library): who holds them is not known"]
    sampled = f"{len(snapshot.samples):,} live blocks sampled, one for each {byte_text(snapshot.rate)} of blocks"
    if snapshot.thinned:
        sampled += f" (the process had one for each {byte_text(snapshot.thinned)}; the rest was left out for lack of room)"
    if quiet:
        sampled += f"; {quiet:,} of them come and go often, and may be attributed to an earlier owner"
    return [*lines, sampled, *filter(None, [_checked_text(snapshot)])]


def pinned_heading(whole: Pinned, page_size: int) -> list[str]:
    """What pages hold besides live blocks, and how well its owners are known."""
    lines = [
        f"pinned {byte_text(whole.waste)}: free, but on {whole.pages:,} pages of {byte_text(page_size)} that live blocks keep in use",
        f"free pages in the same slabs, which can be given back or were never used: at most {byte_text(whole.idle)}",
    ]
    tracked = f"{whole.tracked:,} of {whole.slabs:,} slabs tracked"
    if whole.too_small:
        why = "too few to tell who keeps it (in the default library, HAKMEM_TRACK=128 tracks some of them, HAKMEM_TRACK=1 all)"
        return [*lines, f"{tracked}: {why}"]
    if whole.quiet:
        tracked += f"; {100 * whole.quiet / whole.survivors:.0f} % of their blocks may be attributed to an earlier owner"
    if whole.separable is not None:
        error = byte_text(whole.separable_error)
        lines.append(
            f"separable {byte_text(whole.separable)} ± {error}: at most this much is kept by sites whose blocks last, next to others'"
        )
    return [*lines, tracked]


def _stack_text(frames: list[tuple[str, str]], depth: int) -> Text:
    text = Text()
    for index, (name, place) in enumerate(frames[:depth]):
        text.append("\n  " if index else "")
        text.append(name, style="" if index else "bold")
        text.append(f" {place}" if place else "", style="dim")
    return text


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def profile_table(snapshot: Snapshot, shown: list[Row], count: int, depth: int) -> Table:
    table = _table()
    for title in ("live", "±", "share", "objects", "age"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("allocated by", overflow="fold")
    live = snapshot.live_bytes or 1
    for row, frames in zip(shown, told_apart([row.calls for row in shown])):
        line = row.line
        table.add_row(
            byte_text(line.bytes),
            byte_text(line.error) if line.key != NOT_SAMPLED else "",
            f"{100 * line.bytes / live:.1f} %",
            f"{line.objects:,}",
            age_text(line.age),
            _stack_text(frames, depth),
        )
    table.caption = "±: standard error. Age: byte-weighted mean."
    if count > len(shown):
        rest = snapshot.live_bytes - sum(row.line.bytes for row in shown)
        table.caption += f" {count - len(shown):,} more hold {byte_text(rest)}."
    table.caption_justify = "left"
    return table


def pinned_cells(line: PinnedLine, whole: Pinned) -> list[str]:
    known = line.key != NOT_TRACKED
    return [
        byte_text(line.shared),
        byte_text(line.shared_error) if known else "",
        f"{100 * line.shared / (whole.waste or 1):.1f} %",
        byte_text(line.sole) if known else "",
        byte_text(line.sole_error) if known else "",
        age_text(line.youngest),
        age_text(line.oldest),
    ]


def pinned_table(shown: list[PinnedRow], whole: Pinned, depth: int) -> Table:
    table = _table()
    for title in ("pinned", "±", "share", "sole", "±", "youngest", "oldest"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("kept by blocks allocated by", overflow="fold")
    for row, frames in zip(shown, told_apart([row.calls for row in shown])):
        table.add_row(*pinned_cells(row.line, whole), _stack_text(frames, depth))
    table.caption = (
        "Pinned: divided among all that keep a page. Sole: becomes free, besides its own blocks, if this line alone lets go. "
        "±: standard error."
    )
    if len(whole.lines) > len(shown):
        rest = whole.waste - sum(row.line.shared for row in shown)
        table.caption += f" {len(whole.lines) - len(shown):,} more keep {byte_text(rest)}."
    table.caption_justify = "left"
    return table


def allocated_heading(snapshot: Snapshot) -> str:
    objects, whole = allocations.totals(snapshot)
    when = f"in {snapshot.seconds:g} s" if snapshot.seconds else "while the process was armed"
    freed = "" if snapshot.freed is None else f"; about {snapshot.freed:,} blocks were freed meanwhile"
    return f"allocated {when}, freed since or not: {byte_text(whole)} in {objects:,} blocks{freed}"


def allocated_table(snapshot: Snapshot, shown: list[AllocatedRow], top: int, depth: int) -> Table:
    table = _table()
    for title in ("allocated", "±", "share", "objects"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("by", overflow="fold")
    whole = allocations.totals(snapshot)[1] or 1
    for row, frames in zip(shown[:top], told_apart([row.calls for row in shown[:top]])):
        table.add_row(
            byte_text(row.sums.bytes),
            byte_text(row.sums.error) if row.sums.events else "",
            f"{100 * row.sums.bytes / whole:.1f} %",
            f"{row.sums.objects:,}",
            _stack_text(frames, depth),
        )
    table.caption = "±: standard error."
    if len(shown) > top:
        table.caption += f" {len(shown) - top:,} more allocated {byte_text(sum(row.sums.bytes for row in shown[top:]))}."
    table.caption_justify = "left"
    return table


def _allocated_json(snapshot: Snapshot, shown: list[AllocatedRow]) -> dict[str, Any] | None:
    if not shown:
        return None
    objects, whole = allocations.totals(snapshot)
    return {
        "seconds": snapshot.seconds or None,
        "objects": objects,
        "bytes": whole,
        "freed": snapshot.freed,
        "groups": [
            {"block_size": each.block_size, "objects": each.objects, "bytes": each.bytes} for each in snapshot.counted.values()
        ],
        "lines": [
            {
                "bytes": row.sums.bytes,
                "error": row.sums.error if row.sums.events else None,
                "objects": row.sums.objects,
                "events": row.sums.events,
                **_calls_json(row.calls),
            }
            for row in shown
        ],
    }


def _known(figure: float, key: Hashable) -> float | None:
    """The figure; None for what was not sampled or tracked, since 0 would mean certainty."""
    return None if key in (NOT_SAMPLED, NOT_TRACKED) else figure


def _calls_json(calls: Calls) -> dict[str, Any]:
    """The whole stack, and which call wanted the memory: those before it only pass it on."""
    frames = [{"function": name} | ({"place": place} if place else {}) for name, place in calls.frames]
    return {"frames": frames, "wanted_by": calls.first}


def _pinned_json(shown: list[PinnedRow], whole: Pinned) -> dict[str, Any]:
    return {
        "bytes": whole.waste,
        "pages": whole.pages,
        "free_page_bytes": whole.idle,
        "slabs": whole.slabs,
        "tracked": whole.tracked,
        "too_small": whole.too_small,
        "separable": whole.separable,
        "separable_error": None if whole.separable is None else whole.separable_error,
        "lines": [
            {
                "shared": row.line.shared,
                "shared_error": _known(row.line.shared_error, row.line.key),
                "sole": _known(row.line.sole, row.line.key),
                "sole_error": _known(row.line.sole_error, row.line.key),
                "slabs": row.line.slabs,
                "youngest": row.line.youngest,
                "oldest": row.line.oldest,
                **_calls_json(row.calls),
            }
            for row in shown
        ],
    }


def profile_json(
    snapshot: Snapshot,
    shown: list[Row],
    kept: tuple[list[PinnedRow], Pinned] | None,
    allocated: list[AllocatedRow],
    remarks: list[str],
) -> dict[str, Any]:
    return {
        "process": snapshot.process,
        "time": snapshot.time,
        "window_age": snapshot.window_age,
        "live": snapshot.live_bytes,
        "large": snapshot.large_bytes,
        "sample_bytes": snapshot.rate,
        "samples": len(snapshot.samples),
        "site_confidence": snapshot.confidence,
        "lines": [
            {
                "live": row.line.bytes,
                "error": _known(row.line.error, row.line.key),
                "objects": row.line.objects,
                "asked": row.line.asked,
                "samples": row.line.samples,
                "age": row.line.age,
                **_calls_json(row.calls),
            }
            for row in shown
        ],
        "pinned": _pinned_json(*kept) if kept else None,
        "allocated": _allocated_json(snapshot, allocated),
        "remarks": remarks,
    }


# ---- Differences ----


def _signed(count: float) -> str:
    return ("+" if count > 0 else "-" if count < 0 else "") + byte_text(abs(count))


def difference_heading(difference: Difference) -> list[str]:
    how = (
        "two snapshots of one process: what did not change adds no error"
        if difference.panel
        else "two processes, or pprof profiles: each adds its own error"
    )
    change = difference.after - difference.before
    return [
        f"live {byte_text(difference.before)} before, {byte_text(difference.after)} after: {_signed(change)}",
        f"{len(difference.changes):,} sites; {how}",
    ]


CHANGE_TITLES = ("change", "±", "before", "after", "chance")


def change_cells(change: Change) -> list[str]:
    return [
        _signed(change.change),
        byte_text(change.error),
        byte_text(change.before),
        byte_text(change.after),
        "<0.0001" if change.adjusted < 1e-4 else f"{change.adjusted:.4f}",
    ]


def difference_table(difference: Difference, top: int, depth: int, everything: bool) -> Table:
    table = _table()
    for title in CHANGE_TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("allocated by", overflow="fold")
    changes = difference.changes if everything else difference.told
    for change, frames in zip(changes[:top], told_apart([change.calls for change in changes[:top]])):
        signed, *cells = change_cells(change)
        table.add_row(
            Text(signed, style="bold" if change.told else "dim"),
            *cells,
            _stack_text(frames, depth) if frames else Text(UNKNOWN),
        )
    table.caption = (
        "±: standard error. Chance: of so large a change by sampling alone, adjusted for the number of sites."
    )
    if difference.panel:
        table.caption += " Change: by the blocks that came and went, which is more exact than after minus before, and need not equal it."
    if len(changes) > top:
        table.caption += f" {len(changes) - top:,} more."
    table.caption_justify = "left"
    return table


def difference_json(difference: Difference) -> dict[str, Any]:
    return {
        "before": difference.before,
        "after": difference.after,
        "one_process": difference.panel,
        "changed": len(difference.told),
        "sites": [
            {
                "change": change.change,
                "error": change.error,
                "before": change.before,
                "after": change.after,
                "chance": change.adjusted if math.isfinite(change.adjusted) else None,
                "changed": change.told,
                **_calls_json(change.calls),
            }
            for change in difference.changes
        ],
        "remarks": difference.remarks,
    }

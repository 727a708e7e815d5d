"""Renders results as tables."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from hakmem.compare import TO_TELL, Comparison
from hakmem.names import printable
from hakmem.runs import MEASURES, SYSTEM, Measure, Run, Spread

_WIDEST = 1000  # columns
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def byte_text(count: float) -> str:
    for unit in _BYTE_UNITS:
        if abs(count) < 1024 or unit == _BYTE_UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def exact_byte_text(count: int) -> str:
    """In the largest unit that takes only a few digits: 24 KiB, 1.25 KiB, 1000 B."""
    unit = 0
    while count >= 1024 and unit < len(_BYTE_UNITS) - 1 and len(f"{count / 1024:g}") <= 4:
        count /= 1024
        unit += 1
    return f"{count:g} {_BYTE_UNITS[unit]}"


def scale_of(median: float, unit: str) -> tuple[float, str, str]:
    """The factor, format and unit in which values about as large as `median` read well."""
    if unit == "s":
        return (1, ".3f", " s") if median >= 1 else (1000, ".1f", " ms")
    if unit == "ns":
        return (1, ",.0f", " ns") if median < 1e4 else (1e-3, ",.1f", " us") if median < 1e7 else (1e-6, ",.1f", " ms")
    if unit == "KiB":
        return (1 / 1024, ".1f", " MiB")
    return (1, ",.0f", "")


def spread_text(spread: Spread, scale: tuple[float, str, str]) -> str:
    factor, form, suffix = scale
    text = f"{spread.median * factor:{form}}{suffix}"
    if not spread.median:
        return text
    return f"{text} ±{50 * (spread.most - spread.least) / spread.median:3.0f} %"


def _ratio_text(comparison: Comparison, measure: Measure, other: str) -> Text:
    ratio = comparison.ratio(measure, other)
    if ratio is None or not comparison.same_outcome:
        return Text("")
    if comparison.alike(measure, other):
        return Text(f"~{ratio:.2f}")
    return Text(f"{ratio:.2f}", style="green" if ratio < 0.995 else "red" if ratio > 1.005 else "")


def _comparison_caption(comparison: Comparison) -> str:
    counts = [str(len(runs)) for runs in comparison.runs.values()]
    caption = f"Medians of {', '.join(counts[:-1])} and {counts[-1]} interleaved runs, ± half the range. "
    if not comparison.same_outcome:
        return caption + "No ratios: the runs ended differently."
    others = comparison.others[0] if len(comparison.others) == 1 else "the other"
    return caption + f"Ratio: {comparison.subject} / {others}, less is better; ~ where the difference may be noise."


def _comparison_headings(comparison: Comparison) -> list[str]:
    names = ["system malloc" if name == SYSTEM else name for name in comparison.allocators]
    several = len(comparison.others) > 1
    return ["", *names, *(f"ratio to {other}" if several else "ratio" for other in comparison.others)]


def _comparison_rows(comparison: Comparison) -> Iterator[list[str | Text]]:
    for measure in MEASURES:
        spreads = [comparison.spread(allocator, measure) for allocator in comparison.allocators]
        scale = scale_of(spreads[0].median, measure.unit)
        cells = (spread_text(spread, scale) for spread in spreads)
        yield [measure.title, *cells, *(_ratio_text(comparison, measure, other) for other in comparison.others)]


def comparison_table(comparison: Comparison, title: str | None = None) -> Table:
    """The measures side by side; no ratios if the runs ended differently, since they then did different work."""
    table = Table(
        title=Text(title or shlex.join(comparison.command), "table.title"),
        title_justify="left",
        caption=_comparison_caption(comparison),
        caption_justify="left",
    )
    for index, heading in enumerate(_comparison_headings(comparison)):
        table.add_column(heading, justify="right" if index else "left")
    for row in _comparison_rows(comparison):
        table.add_row(*row)
    return table


def comparison_markdown(comparison: Comparison) -> str:
    """The same table in Markdown, with the verdict."""

    def line(cells: Iterable[str | Text]) -> str:
        return f"| {' | '.join(re.sub(r' +', ' ', str(cell)).replace('|', chr(92) + '|') for cell in cells)} |"

    headings = _comparison_headings(comparison)
    lines = [f"    {shlex.join(comparison.command)}".replace("\n", " "), "", line(headings)]
    lines += [line([":---", *["---:"] * (len(headings) - 1)]), *map(line, _comparison_rows(comparison))]
    lines += ["", _comparison_caption(comparison), *(["", *verdict_lines(comparison)] if comparison.judged else [])]
    return "\n".join(lines) + "\n"


def verdict_lines(comparison: Comparison) -> list[str]:
    """How hakmem compares with each of the others, a line for each; none if there is no verdict."""
    return [_verdict(comparison, other) for other in comparison.others] if comparison.judged else []


def _share(comparison: Comparison, key: str, other: str, of: str) -> str:
    """Says how much of the other's a measure is; empty if the difference may be noise."""
    measure = _measure(key)
    return "" if comparison.alike(measure, other) else f"with {comparison.ratio(measure, other):.2f} of its {of}"


def _measure(key: str) -> Measure:
    return next(measure for measure in MEASURES if measure.key == key)


def _verdict(comparison: Comparison, other: str) -> str:
    subject, time = comparison.subject, _measure("seconds")
    if not comparison.enough:
        return f"{subject} against {other}: too few runs for a verdict, which takes {TO_TELL}"
    peak = _share(comparison, "peak_rss_kib", other, "peak")
    ratio = comparison.ratio(time, other)
    if not ratio or comparison.alike(time, other):
        shares = list(filter(None, (_share(comparison, "cpu_seconds", other, "processor time"), peak)))
        return f"{subject} against {other}: no difference beyond noise" + (f" in time, {' and '.join(shares)}" if shares else "")
    factor, how = (1 / ratio, "faster") if ratio < 1 else (ratio, "slower")
    error = factor * comparison.error(time, other)
    return f"{subject} was {factor:.2f} ± {error:.2f} times {how} than {other}, {peak or 'with no difference in peak beyond noise'}"


def outcome_lines(comparison: Comparison) -> list[str]:
    """Remarks on runs that did not end with exit 0; empty if all did."""
    lines = []
    for allocator, runs in comparison.runs.items():
        outcomes = [run.outcome for run in runs]
        for outcome in sorted(set(outcomes) - {"exit 0"}):
            lines.append(f"{outcomes.count(outcome)} of {len(runs)} runs under {allocator}: {outcome}")
    failed: list[Run] = [run for runs in comparison.runs.values() for run in runs if run.outcome != "exit 0"]
    if failed and failed[-1].errors:
        lines.append(f"the last one's standard error ended with:\n{failed[-1].errors}")
    return lines


# ---- Options ----


def _option_value(option: dict[str, Any], key: str) -> str:
    value = option.get(key)
    return "" if value is None else str(value)


def _option_range(option: dict[str, Any]) -> str:
    if option.get("type") == "switch":
        return "0 or 1"
    least, most = _option_value(option, "min"), _option_value(option, "max")
    return f"{least} to {most}" if least and most else option.get("type", "")


def options_table(options: list[dict[str, Any]]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        caption="* hak_option_set can change it while the program runs; the others are read only when it starts.",
        caption_justify="left",
    )
    table.add_column("variable", no_wrap=True)
    table.add_column("default", justify="right")
    table.add_column("range", no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for option in options:
        name = option["name"].upper().removeprefix("HAKMEM_")
        table.add_row(
            f"HAKMEM_{name}{'*' if option.get('runtime') else ''}",
            _option_value(option, "default"),
            _option_range(option),
            option.get("help", ""),
        )
    return table


# ---- Statistics ----

# (key, title, depth); a deeper row is part of the row above it.
_MEMORY_ROWS = (
    ("resident", "resident set of the process", 0),
    ("committed", "committed for blocks", 0),
    ("live", "live: held by the program", 1),
    ("requested", "requested (estimate)", 2),
    ("cached", "cached in thread bins", 1),
    ("remote", "freed by other threads, not yet collected", 1),
    ("slab_free", "free in slabs in use", 1),
    ("span_free", "free units, between spans", 1),
    ("purge_pending", "touched, to be given back", 2),
    ("metadata", "metadata", 0),
    ("reserved", "address space mapped", 0),
)

_COUNT_GROUPS = (
    ("structure", ("superslabs", "slabs", "large_blocks", "heaps", "heaps_orphaned", "mappings")),
    (
        "traffic",
        (
            "bin_hits",
            "refills",
            "refill_blocks",
            "flushes",
            "flush_blocks",
            "remote_frees",
            "large_allocs",
            "large_frees",
        ),
    ),
    (
        "policies at work",
        (
            "bins_grown",
            "bins_shrunk",
            "purged",
            "holes_purged",
            "purged_again",
            "populated",
            "lead_slabs",
            "superslabs_moved",
            "superslabs_huge",
            "huge_trials",
            "huge_losses",
            "huge_price_ns",
            "small_price_ns",
            "guards_left_out",
            "keeper_starts",
        ),
    ),
    ("system calls", ("sys_mmap", "sys_munmap", "sys_mprotect", "sys_madvise", "sys_mremap", "sys_other")),
    ("limits", ("limit", "limit_use", "limit_level", "limit_given", "limit_percent", "limit_looks", "limit_refused")),
)

# How figures that are not counts are written.
_CELLS = {
    "purged": byte_text,
    "holes_purged": byte_text,
    "purged_again": byte_text,
    "populated": byte_text,
    "limit": byte_text,
    "limit_use": byte_text,
    "limit_given": byte_text,
    "block_size": exact_byte_text,
    "slab_size": exact_byte_text,
    "slab_bytes": byte_text,
    "cached": byte_text,
}

# Titles of counts that their keys do not explain.
_COUNT_TITLES = {
    "superslabs": "superslabs (2 MiB of block memory each)",
    "slabs": "slabs (blocks of one size class side by side)",
    "heaps": "heaps (one for each thread that allocates, and named ones)",
    "heaps_orphaned": "of these, orphaned (their threads have ended)",
    "mappings": "mappings of the process",
    "bin_hits": "bin hits (estimate)",
    "purged": "free units given back",
    "holes_purged": "holes, free pages in slabs, given back",
    "purged_again": "given back as the heap grew, and needed again",
    "populated": "slabs populated by one call",
    "lead_slabs": "slabs taken for HAKMEM_LEAD",
    "huge_trials": "huge pages timed as they came in",
    "huge_losses": "of these, too expensive, so that none was requested for a while",
    "huge_price_ns": "2 MiB as a huge page, last measured, ns",
    "small_price_ns": "2 MiB as small pages, last measured, ns",
    "keeper_starts": "starts of the keeper, which gives memory back",
    "limit": "the nearest memory limit",
    "limit_use": "used of that limit",
    "limit_level": "how near it is, 0 (not near) to 3 (urgent)",
    "limit_given": "given back near a limit",
    "limit_percent": "percent of the limit, the most in use then",
    "limit_looks": "checks of limits",
    "limit_refused": "refusals for HAKMEM_LIMIT_HARD",
}

# (key, heading)
_CLASS_COLUMNS = (
    ("block_size", "block size"),
    ("slab_size", "slab size"),
    ("slabs", "slabs"),
    ("live_blocks", "live"),
    ("cached_blocks", "cached"),
    ("free_blocks", "free"),
    ("remote_blocks", "remote"),
    ("refills", "refills"),
    ("flushes", "flushes"),
)


def _memory_table(stats: dict[str, Any]) -> Table:
    table = Table(title="memory", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("size", justify="right")
    table.add_column("of committed", justify="right")
    committed = stats.get("committed", 0)
    for key, title, depth in _MEMORY_ROWS:
        if not stats.get(key):
            continue
        share = f"{100 * stats[key] / committed:.1f} %" if depth and committed else ""
        table.add_row("  " * depth + title, byte_text(stats[key]), share)
    return table


def _count_table(title: str, keys: tuple[str, ...], stats: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=box.SIMPLE_HEAD)
    table.add_column()
    table.add_column(justify="right")
    for key in keys:
        if stats.get(key):
            title = _COUNT_TITLES.get(key, key.removeprefix("sys_").replace("_", " "))
            table.add_row(title, _CELLS.get(key, "{:,}".format)(stats[key]))
    return table


_HEAP_COLUMNS = (
    ("orphaned", "orphan"),
    ("slabs", "slabs"),
    ("slab_bytes", "in slabs"),
    ("cached", "in bins"),
    ("remote_frees", "remote"),
    ("refills", "refills"),
    ("flushes", "flushes"),
)


def _row_table(title: str, columns: tuple[tuple[str, str], ...], rows: list[dict[str, int]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    shown = [(key, heading) for key, heading in columns if any(row.get(key) for row in rows)]
    for _, heading in shown:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(_CELLS.get(key, "{:,}".format)(row[key]) if row.get(key) else "" for key, _ in shown))
    return table


def _class_table(classes: list[dict[str, int]]) -> Table:
    used = [entry for entry in classes if any(entry.get(key, 0) for key, _ in _CLASS_COLUMNS[2:])]
    return _row_table("size classes in use", _CLASS_COLUMNS, used)


STATS_FIGURES = (*(key for key, _, _ in _MEMORY_ROWS), *(key for _, keys in _COUNT_GROUPS for key in keys))
STATS_ROWS = {  # lists of objects, and their figures
    "class_stats": tuple(key for key, _ in _CLASS_COLUMNS),
    "heap_stats": tuple(key for key, _ in _HEAP_COLUMNS),
}


def stats_tables(stats: dict[str, Any]) -> list[RenderableType]:
    """The tables of a report, without zero figures, and why memory was given back near a limit."""
    heading = f"hakmem {stats.get('version', '?')}, process {stats.get('pid', '?')}"
    if stats.get("name"):
        heading += f" ({stats['name']})"
    tables: list[RenderableType] = [Text(printable(heading), style="bold"), _memory_table(stats)]
    for title, keys in _COUNT_GROUPS:
        if any(stats.get(key) for key in keys):
            tables.append(_count_table(title, keys, stats))
    if stats.get("limit_reason"):
        tables.append(Text(printable(f"gave back {byte_text(stats.get('limit_given', 0))}: {stats['limit_reason']}") + "\n"))
    if stats.get("class_stats"):
        tables.append(_class_table(stats["class_stats"]))
    if stats.get("heap_stats"):
        tables.append(_row_table("heaps, newest record first", _HEAP_COLUMNS, stats["heap_stats"]))
    return tables


def console(**options: Any) -> Console:
    """A console that prints foreign names: brackets and colons have no special meaning."""
    return Console(markup=False, emoji=False, **options)


def print_wide(table: Table, *, to_errors: bool = False) -> None:
    write_wide([table], sys.stderr if to_errors else sys.stdout)


def write_wide(renderables: Sequence[RenderableType], file: IO[str]) -> None:
    """Folds tables if a terminal is too narrow; elsewhere they have their full width."""
    shown = console(file=file)
    if not shown.is_terminal:
        wanted = max(console(width=_WIDEST).measure(one).maximum for one in renderables)
        shown = console(file=file, width=max(shown.width, wanted))
    for one in renderables:
        shown.print(one)


def wide_text(parts: Iterable[str | Table]) -> str:
    """What print_wide() prints if there is no terminal, for one part after the other."""
    shown = console(file=io.StringIO(), width=_WIDEST, color_system=None, force_terminal=False)
    with shown.capture() as capture:
        for part in parts:
            shown.print(Text(part) if isinstance(part, str) else part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def print_all(renderables: list[RenderableType]) -> None:
    shown = console()
    for renderable in renderables:
        shown.print(renderable)

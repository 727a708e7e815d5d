"""The tables of the report, the same for HTML, Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hakmem.bench.allocators import BASELINE
from hakmem.bench.analysis import CONFIDENCE, FAR, FEWEST, FIGURES, MEMORY, NOTABLE, TIME, Results, own_key
from hakmem.bench.workloads import Workload
from hakmem.render import scale_of, spread_text
from hakmem.runs import HAKMEM, Spread

NONE = "–"
BRIEF = "BRIEF SIZES: these figures show that everything runs, and measure nothing. "


@dataclass(frozen=True)
class Cell:
    text: str
    mark: str = ""  # "best" of its row, "win" or "loss" of hakmem, "failed", "name" for a heading


@dataclass
class Table:
    key: str
    title: str
    note: str
    headings: list[str]
    rows: list[list[Cell]] = field(default_factory=list)


def ratio_text(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"


def _marked_best(values: list[float | None], texts: list[str]) -> list[Cell]:
    there = [value for value in values if value is not None]
    return [
        Cell(text, "best" if len(set(there)) > 1 and value == min(there) else "")
        for value, text in zip(values, texts, strict=True)
    ]


# ---- Over all workloads ----


def _mean_columns(results: Results) -> list[tuple[str, str | None, str]]:
    """(measure, group or None for all, heading)"""
    several = len(results.groups()) > 1 and "program" in results.groups()
    groups: list[str | None] = [None, "program"] if several else [None]
    return [
        (key, group, f"{title}, {'all' if group is None else 'programs'} ({len(results.common(group, key))})")
        for group in groups
        for key, title in (
            (TIME, "time"),
            (MEMORY, "peak RSS"),
            *((key, short) for key, _, short in results.over_time()),
        )
    ]


def summary(results: Results) -> Table:
    columns = _mean_columns(results)
    left_out = len(results.plain) - len(results.common())
    note = (
        f"Geometric means of the ratios to {results.reference}, of medians; less is better. In brackets: over how many "
        "workloads. "
    )
    if results.stored["size"] == "brief":
        note = BRIEF + note
    if left_out:
        note += f"{left_out} of {len(results.plain)} workloads are left out of every mean: an allocator failed there. "
    table = Table("summary", "Summary", note, ["allocator", "version", *(heading for _, _, heading in columns)])
    means = {name: [results.mean(name, key, group) for key, group, _ in columns] for name in results.allocators}
    by_column = [
        _marked_best([means[name][i] for name in means], [ratio_text(means[name][i]) for name in means])
        for i in range(len(columns))
    ]
    for row, entry in enumerate(results.stored["allocators"]):
        cells = [column[row] for column in by_column]
        table.rows.append([Cell(entry["name"], "name"), Cell(entry["version"] or NONE), *cells])
    if len(results.allocators) > 2:
        table.note += "The last row takes, on each workload and for each measure, the best allocator other than hakmem."
        bests = [ratio_text(results.mean_of_best_peers(key, group)) for key, group, _ in columns]
        table.rows.append([Cell("best peer of each workload", "name"), Cell(NONE), *map(Cell, bests)])
    return table


def left_out(results: Results) -> Table:
    table = Table(
        "left-out",
        "Failed",
        "An allocator failed on these workloads, so no mean counts them, for any allocator.",
        ["workload", "allocator", "reason"],
    )
    for workload, allocator, reason in results.failures():
        table.rows.append([Cell(workload, "name"), Cell(allocator), Cell(reason.splitlines()[0], "failed")])
    return table


def losses(results: Results, key: str, title: str) -> Table:
    table = Table(
        f"losses-{key}",
        f"Where hakmem is not first: {title}",
        f"Every workload on which hakmem's median is more than {100 * (NOTABLE - 1):.0f} % above the best other "
        "allocator's; ~ where the ranges of the two overlap. The interval is the bootstrap's, of at least "
        f"{FEWEST} runs each.",
        ["workload", "best peer", "hakmem / best peer", f"{100 * CONFIDENCE:.0f} % interval"],
    )
    for loss in results.losses(key):
        text = ("~" if loss.overlaps else "") + ratio_text(loss.ratio)
        interval = " to ".join(map(ratio_text, loss.interval)) if loss.interval else NONE
        table.rows.append([Cell(loss.workload, "name"), Cell(loss.peer), Cell(text, "loss"), Cell(interval)])
    return table


def outliers(results: Results) -> Table:
    table = Table(
        "outliers",
        "Runs that stand out",
        f"Their time is more than {FAR} standard deviations, taken from the median deviation, and more than "
        f"{100 * (NOTABLE - 1):.0f} % from the median of their repetitions. They stay in every figure; where there are many, "
        "the machine was not idle.",
        ["workload", "allocator", "repetition", "time", "/ median"],
    )
    for run in results.outliers():
        factor, form, suffix = scale_of(run.median, "s")
        cells = [
            str(run.repetition + 1),
            f"{run.seconds * factor:{form}}{suffix}",
            ratio_text(run.seconds / run.median),
        ]
        table.rows.append([Cell(run.workload, "name"), Cell(run.allocator), *map(Cell, cells)])
    return table


# ---- Each workload ----


def _by_workload(results: Results, table: Table, cells) -> Table:
    for workload in results.plain:
        table.rows.append([Cell(workload.name, "name"), *cells(workload.name)])
    return table


def _with_failures(results: Results, workload: str, cells: list[Cell]) -> list[Cell]:
    return [
        Cell("failed", "failed") if results.failure(workload, allocator) else cell
        for allocator, cell in zip(results.allocators, cells, strict=True)
    ]


def ratios(results: Results, key: str, title: str) -> Table:
    """Each allocator's ratio to the reference, and hakmem's to the best peer."""
    with_peers = HAKMEM in results.allocators and len(results.allocators) > 2
    table = Table(
        f"ratio-{key}",
        f"{title[:1].upper()}{title[1:]}, ratio to {results.reference}",
        "Quotients of medians; less is better.",
        ["workload", *results.allocators, *(["hakmem / best peer", "best peer"] if with_peers else [])],
    )

    def cells(workload: str) -> list[Cell]:
        values = [results.ratio(workload, allocator, key) for allocator in results.allocators]
        found = _with_failures(results, workload, _marked_best(values, [ratio_text(value) for value in values]))
        return [*found, *(_against_best(results, workload, key) if with_peers else [])]

    return _by_workload(results, table, cells)


def _against(results: Results, workload: str, key: str, other: str | None) -> Cell:
    """hakmem's ratio to another."""
    ratio = results.ratio(workload, HAKMEM, key, to=other) if other else None
    mark = "" if ratio is None else "loss" if ratio > NOTABLE else "win" if ratio < 1 / NOTABLE else ""
    return Cell(ratio_text(ratio), mark)


def _against_best(results: Results, workload: str, key: str) -> list[Cell]:
    peer = results.best_peer(workload, key)
    return [_against(results, workload, key, peer), Cell(peer or NONE)]


def _spread_text(spread: Spread, scale: tuple[float, str, str]) -> str:
    if spread.least == spread.most:
        factor, form, suffix = scale
        return f"{spread.median * factor:{form}}{suffix}"
    return spread_text(spread, scale)


def _spread_cells(results: Results, workload: str, key: str, unit: str, judged: bool = True) -> list[Cell]:
    """Each allocator's median and spread; the best is marked where less is better."""
    spreads = [results.spread(workload, allocator, key) for allocator in results.allocators]
    scale = scale_of(min((spread.median for spread in spreads if spread), default=0), unit)
    texts = [_spread_text(spread, scale) if spread else NONE for spread in spreads]
    values = [spread and spread.median if judged else None for spread in spreads]
    return _with_failures(results, workload, _marked_best(values, texts))


def measure(results: Results, key: str, title: str, unit: str) -> Table:
    """Medians and spreads as they are."""
    table = Table(
        f"measure-{key}",
        title[:1].upper() + title[1:],
        "Medians; ± half of what lies between the least and the most.",
        ["workload", *results.allocators],
    )

    return _by_workload(results, table, lambda name: _spread_cells(results, name, key, unit))


def measures(results: Results) -> list[Table]:
    return [measure(results, *figure) for figure in FIGURES]


def mebibytes(results: Results, key: str, title: str) -> Table:
    """Medians of a resident set in MiB, as bare numbers."""
    heading = f"{title[:1].upper()}{title[1:]}, MiB"
    table = Table(f"mib-{key}", heading, "Medians; less is better.", ["workload", *results.allocators])

    def cells(workload: str) -> list[Cell]:
        spreads = [results.spread(workload, allocator, key) for allocator in results.allocators]
        values = [spread and spread.median for spread in spreads]
        texts = [NONE if value is None else f"{value / 1024:.1f}" for value in values]
        return _with_failures(results, workload, _marked_best(values, texts))

    return _by_workload(results, table, cells)


# ---- One workload ----


def one_workload(results: Results, workload: Workload) -> Table:
    """What its runs cost and what it measured itself, a line each; hakmem beside the reference and the best other."""
    name = workload.name
    others = HAKMEM in results.allocators and results.reference != HAKMEM
    with_peers = others and len(results.allocators) > 2
    table = Table(
        f"one-{name}",
        name,
        (BRIEF if results.stored["size"] == "brief" else "")
        + f"{workload.about} Medians; ± half of what lies between the least and the most.",
        ["", *results.allocators]
        + ([f"hakmem / {results.reference}"] if others else [])
        + (["hakmem / best peer", "best peer"] if with_peers else []),
    )
    # Who measures something itself may sleep, so that its time says nothing.
    lines = [
        (key, title, unit, key != TIME or not workload.figures)
        for key, title, unit in FIGURES
        if any((spread := results.spread(name, allocator, key)) and spread.most for allocator in results.allocators)
    ]
    lines += [(own_key(own.name), own.name, own.unit, own.judged) for own in results.figures(name)]
    for key, title, unit, judged in lines:
        row = [Cell(title, "name"), *_spread_cells(results, name, key, unit, judged)]
        if others:
            row.append(_against(results, name, key, results.reference if judged else None))
        if with_peers:
            row += _against_best(results, name, key) if judged else [Cell(NONE), Cell(NONE)]
        table.rows.append(row)
    return table


# ---- Two builds ----


def _paired_cell(spread: Spread | None) -> Cell:
    if spread is None:
        return Cell(NONE)
    mark = "win" if spread.most < 1 else "loss" if spread.least > 1 else ""
    return Cell(f"{spread.median:.3f} ({spread.least:.3f} to {spread.most:.3f})", mark)


def paired(results: Results) -> Table:
    table = Table(
        "paired",
        f"hakmem / {BASELINE}, paired",
        "The ratio within each repetition: its median, and in brackets the least and the most; less is better. Marked "
        "where all repetitions agree. The first row is the geometric mean within each repetition.",
        ["workload", "time", "peak RSS"],
    )
    means = [_paired_cell(results.paired_mean(key)) for key in (TIME, MEMORY)]
    table.rows.append([Cell("geometric mean", "name"), *means])
    return _by_workload(
        results, table, lambda name: [_paired_cell(results.paired(name, key)) for key in (TIME, MEMORY)]
    )


# ---- As Markdown ----


def _markdown_cell(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|")
    return f"**{text}**" if cell.mark in ("best", "loss", "failed") else text


def markdown(tables: Iterable[Table]) -> str:
    parts = []
    for table in tables:
        lines = [f"## {table.title}", "", table.note.strip(), ""]
        if table.rows:
            lines.append("| " + " | ".join(table.headings) + " |")
            lines.append("|" + " --- |" + " ---: |" * (len(table.headings) - 1))
            lines += ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in table.rows]
        else:
            lines.append("None.")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"

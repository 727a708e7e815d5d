"""The tables of the report, the same for HTML, Markdown and the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from hakmem.bench.allocators import BASELINE
from hakmem.bench.analysis import CONFIDENCE, FAR, FEWEST, FIGURES, MEMORY, NOTABLE, TIME, Results, own_key
from hakmem.bench.since import Since
from hakmem.bench.workloads import Workload
from hakmem.render import scale_of, spread_text
from hakmem.runs import HAKMEM, Spread

NONE = "–"
BRIEF = "BRIEF SIZES: these figures show that everything runs, and mean nothing else. "


@dataclass(frozen=True)
class Cell:
    text: str
    mark: str = ""  # "best" of its row, "win" or "loss" of hakmem, "failed", "name" for a heading
    value: float | None = None  # what to sort by, if the text has a unit


@dataclass
class Table:
    key: str
    title: str
    note: str
    headings: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    of: str = ""  # what the first cell of each row names: "workload", "allocator", or something else


def ratio_text(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"


def _marked_best(values: list[float | None], texts: list[str]) -> list[Cell]:
    there = [value for value in values if value is not None]
    return [
        Cell(text, "best" if len(set(there)) > 1 and value == min(there) else "")
        for value, text in zip(values, texts)
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
        f"Geometric means of the ratios of medians to {results.reference}'s; less is better. In brackets: the number of "
        "workloads. "
    )
    if results.stored["size"] == "brief":
        note = BRIEF + note
    if left_out:
        note += f"{left_out} of {len(results.plain)} workloads are left out of every mean: an allocator failed there. "
    headings = ["allocator", "version", *(heading for _, _, heading in columns)]
    table = Table("summary", "Summary", note, headings, of="allocator")
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


def standing(results: Results) -> Table:
    percent = f"{100 * (NOTABLE - 1):.0f} %"
    table = Table(
        "standing",
        "Wins and losses",
        f"The number of workloads on which hakmem's median is more than {percent} below the best other allocator's, within {percent} of "
        "it, or more than that above it. The best other allocator is chosen for each workload.",
        ["measure", "wins", "level", "losses", "no figure"],
    )
    several = len(results.groups()) > 1
    for key, title in ((TIME, "time"), (MEMORY, "peak RSS"), *((key, short) for key, _, short in results.over_time())):
        for group in (None, *results.groups()) if several else (None,):
            found = results.standing(key, group)
            name = f"{title}, {group or 'all'}" if several else title
            cells = [
                Cell(str(found.ahead), "win" if found.ahead else ""),
                Cell(str(found.level)),
                Cell(str(found.behind), "loss" if found.behind else ""),
                Cell(str(found.missing)),
            ]
            table.rows.append([Cell(name, "name"), *cells])
    return table


def left_out(results: Results) -> Table:
    table = Table(
        "left-out",
        "Failed",
        "An allocator failed on these workloads, so every allocator's means leave them out.",
        ["workload", "allocator", "reason"],
        of="workload",
    )
    for workload, allocator, reason in results.failures():
        table.rows.append([Cell(workload, "name"), Cell(allocator), Cell(reason.splitlines()[0], "failed")])
    return table


def losses(results: Results, key: str, title: str) -> Table:
    table = Table(
        f"losses-{key}",
        f"Where hakmem is not first: {title}",
        f"Every workload on which hakmem's median is more than {100 * (NOTABLE - 1):.0f} % above the best other "
        "allocator's; ~ where the ranges of the two overlap. The interval is from the bootstrap, with at least "
        f"{FEWEST} runs each.",
        ["workload", "best peer", "hakmem / best peer", f"{100 * CONFIDENCE:.0f} % interval"],
        of="workload",
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
        f"Their time is more than {FAR} standard deviations, estimated from the median deviation, and more than "
        f"{100 * (NOTABLE - 1):.0f} % from the median of their repetitions. Every figure still includes them; if there are many, "
        "the machine was not idle.",
        ["workload", "allocator", "repetition", "time", "/ median"],
        of="workload",
    )
    for run in results.outliers():
        factor, form, suffix = scale_of(run.median, "s")
        cells = [
            Cell(str(run.repetition + 1)),
            Cell(f"{run.seconds * factor:{form}}{suffix}", value=run.seconds),
            Cell(ratio_text(run.seconds / run.median)),
        ]
        table.rows.append([Cell(run.workload, "name"), Cell(run.allocator), *cells])
    return table


# ---- Each workload ----


def _by_workload(results: Results, table: Table, cells) -> Table:
    for workload in results.plain:
        table.rows.append([Cell(workload.name, "name"), *cells(workload.name)])
    return table


def _with_failures(results: Results, workload: str, cells: list[Cell]) -> list[Cell]:
    return [
        Cell("failed", "failed") if results.failure(workload, allocator) else cell
        for allocator, cell in zip(results.allocators, cells)
    ]


def ratios(results: Results, key: str, title: str) -> Table:
    """Each allocator's ratio to the reference, and hakmem's to the best peer."""
    with_peers = HAKMEM in results.allocators and len(results.allocators) > 2
    table = Table(
        f"ratio-{key}",
        f"{title[:1].upper()}{title[1:]}, ratio to {results.reference}",
        "Ratios of medians; less is better.",
        ["workload", *results.allocators, *(["hakmem / best peer", "best peer"] if with_peers else [])],
        of="workload",
    )

    def cells(workload: str) -> list[Cell]:
        values = [results.ratio(workload, allocator, key) for allocator in results.allocators]
        found = _with_failures(results, workload, _marked_best(values, [ratio_text(value) for value in values]))
        return [*found, *(_against_best(results, workload, key) if with_peers else [])]

    return _by_workload(results, table, cells)


def _against(results: Results, workload: str, key: str, other: str | None) -> Cell:
    """hakmem's ratio to another allocator."""
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
    """Each allocator's median and spread; the best is marked if less is better."""
    spreads = [results.spread(workload, allocator, key) for allocator in results.allocators]
    scale = scale_of(min((spread.median for spread in spreads if spread), default=0), unit)
    texts = [_spread_text(spread, scale) if spread else NONE for spread in spreads]
    values = [spread and spread.median if judged else None for spread in spreads]
    return _with_failures(results, workload, _marked_best(values, texts))


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
    """The costs of its runs and the figures it measured itself, a line each; hakmem is compared with the reference and the best peer."""
    name = workload.name
    others = HAKMEM in results.allocators and results.reference != HAKMEM
    with_peers = others and len(results.allocators) > 2
    table = Table(
        f"one-{name}",
        name,
        (BRIEF if results.stored["size"] == "brief" else "")
        + f"{workload.about} Medians; ± half the range.",
        ["", *results.allocators]
        + ([f"hakmem / {results.reference}"] if others else [])
        + (["hakmem / best peer", "best peer"] if with_peers else []),
    )
    # A workload that measures something itself may sleep, so its time means nothing.
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
        "The ratio within each repetition: its median, and in brackets its minimum and maximum; less is better. Marked "
        "where all repetitions agree. The first row is the geometric mean within each repetition.",
        ["workload", "time", "peak RSS"],
    )
    means = [_paired_cell(results.paired_mean(key)) for key in (TIME, MEMORY)]
    table.rows.append([Cell("geometric mean", "name"), *means])
    return _by_workload(
        results, table, lambda name: [_paired_cell(results.paired(name, key)) for key in (TIME, MEMORY)]
    )


# ---- An older run ----


def _drift(since: Since, workload: str, key: str) -> float | None:
    """The median change of the other allocators, which shows the machine's drift."""
    changes = [since.change(workload, name, key) for name in since.allocators if name != HAKMEM]
    ratios = [change.ratio for change in changes if change]
    return statistics.median(ratios) if ratios else None


def since_means(since: Since) -> Table:
    before = since.before.stored
    commit = before["hakmem"]["commit"] or "unknown"
    note = (
        f"Before is the run of {before['begun']}, commit {commit}. Geometric means of now / before, over the workloads (their number in "
        "brackets) that both have in the same sizes; less is better. Where an allocator's build is the same, its change is the machine's. "
    )
    if not since.common(TIME):
        note += "No workload was finished by all in both runs. "
    differing = since.other_machine()
    if differing:
        note += f"The machines differ in: {', '.join(differing)}. "
    figures = [(TIME, "time"), (MEMORY, "peak RSS")]
    table = Table(
        "since",
        "Since the last run",
        note,
        ["allocator", "version", *(f"{title} ({len(since.common(key))})" for key, title in figures)],
        of="allocator",
    )
    for name in since.allocators:
        means = [Cell(ratio_text(since.mean(name, key))) for key, _ in figures]
        table.rows.append([Cell(name, "name"), Cell(since.version(name)), *means])
    return table


def since_changes(since: Since) -> Table:
    table = Table(
        "since-changes",
        "What changed under hakmem",
        f"Every workload whose median changed by more than {100 * (NOTABLE - 1):.0f} % and beyond the spread: the ranges of the "
        "repetitions, before and now, do not overlap. Next to it, the median change of the other allocators.",
        ["workload", "measure", "before", "now", "now / before", "the others'"],
        of="workload",
    )
    for key, title, unit in FIGURES:
        if key not in (TIME, MEMORY):
            continue
        for name, change in since.notable(HAKMEM, key) if HAKMEM in since.allocators else ():
            factor, form, suffix = scale_of(min(change.before, change.now), unit)
            texts = [Cell(f"{value * factor:{form}}{suffix}", value=value) for value in (change.before, change.now)]
            ratio = Cell(ratio_text(change.ratio), "loss" if change.ratio > 1 else "win")
            drift = Cell(ratio_text(_drift(since, name, key)))
            table.rows.append([Cell(name, "name"), Cell(title), *texts, ratio, drift])
    return table


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

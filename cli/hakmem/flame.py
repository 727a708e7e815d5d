"""A profile as one self-contained HTML page: flame graphs of live, pinned and grown memory and of its age, and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any

from hakmem import ages, insight, outside_commands
from hakmem.calls import told_apart
from hakmem.diff import Change, Difference
from hakmem.estimates import NOT_SAMPLED, UNKNOWN, Line, estimate
from hakmem.pinned import NOT_TRACKED
from hakmem.render import byte_text
from hakmem.resident import Table
from hakmem.snapshots import Snapshot
from hakmem.symbols import Symbols

_TEMPLATE = "flame.html"
_PLACE = "/*data*/null"
_MOST_ROWS = 1000
_LEAST_SHARE = 1e-5  # of the whole; narrower calls are left out, since no screen would show them
_MOST_DEPTH = 200
_NO_VERDICT = "what is resident, and why, is known only for a running process"
_MORE, _LESS = "more", "less"


def _names(key: Any, symbols: Symbols) -> list[str]:
    """The names of the site's calls, the outermost first; or why there are none."""
    if key in (NOT_SAMPLED, NOT_TRACKED):
        return [key]
    return [frame.name for frame in reversed(symbols.stack(key))][-_MOST_DEPTH:] or [UNKNOWN]


def _tree(name: str, held: Iterable[tuple[list[str], int]]) -> dict[str, Any]:
    """Calls from the outermost: name, bytes, and the calls below by their names."""
    root: dict[str, Any] = {"name": name, "bytes": 0, "below": {}}
    for names, size in held:
        node = root
        node["bytes"] += size
        for each in names:
            node = node["below"].setdefault(each, {"name": each, "bytes": 0, "below": {}})
            node["bytes"] += size
    return root


def _pruned(node: dict[str, Any], least: float) -> dict[str, Any]:
    below = [_pruned(each, least) for each in node["below"].values() if each["bytes"] >= least]
    below.sort(key=lambda each: -each["v"])
    return {"n": node["name"], "v": node["bytes"]} | ({"c": below} if below else {})


def _view(
    heading: list[str], titles: list[str], tree: dict[str, Any], rows: list[tuple[list[str], list[str]]], count: int
) -> dict[str, Any]:
    """One flame graph and its table: rows are cells and frames."""
    return {
        "heading": heading,
        "titles": titles,
        "tree": _pruned(tree, tree["bytes"] * _LEAST_SHARE),
        "rows": [{"cells": cells, "frames": frames} for cells, frames in rows],
        "left": count - len(rows),
    }


def _with_frames(rows: list[Any]) -> Iterator[tuple[Any, list[str]]]:
    """The rows that are shown, and their calls as text."""
    shown = rows[:_MOST_ROWS]
    for row, frames in zip(shown, told_apart([row.calls for row in shown])):
        yield row, [f"{name} {place}".rstrip() for name, place in frames]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / (whole or 1):.1f} %"


def _live(snapshot: Snapshot, symbols: Symbols) -> dict[str, Any]:
    rows, count = insight.rows(snapshot, symbols, insight.SITE)

    def cells(line: Line) -> list[str]:
        error = "" if line.key == NOT_SAMPLED else byte_text(line.error)
        share = _share(line.bytes, snapshot.live_bytes)
        return [byte_text(line.bytes), error, share, f"{line.objects:,}", insight.age_text(line.age)]

    titles = ["live", "± standard error", "share", "objects", "age", "allocated by"]
    tree = _tree("live", ((_names(row.line.key, symbols), row.line.bytes) for row in rows))
    shown = [(cells(row.line), frames) for row, frames in _with_frames(rows)]
    return _view(insight.heading(snapshot), titles, tree, shown, count)


def _pinned(snapshot: Snapshot, symbols: Symbols) -> dict[str, Any] | None:
    found = insight.pinned_rows(snapshot, symbols, insight.SITE)
    if found is None:
        return None
    rows, whole = found
    titles = [
        "pinned",
        "± standard error",
        "share",
        "sole",
        "± standard error",
        "youngest",
        "oldest",
        "kept by blocks allocated by",
    ]
    tree = _tree("pinned", ((_names(row.line.key, symbols), row.line.shared) for row in rows))
    shown = [(insight.pinned_cells(row.line, whole), frames) for row, frames in _with_frames(rows)]
    return _view(insight.pinned_heading(whole, snapshot.page_size), titles, tree, shown, len(rows))


def _growth(difference: Difference) -> dict[str, Any]:
    """What changed beyond chance; changes that may be due to chance are left out."""
    heading = insight.difference_heading(difference)
    told = difference.told
    heading.append(f"beyond chance: {len(told):,} sites" if told else "no site changed beyond chance")

    def names(change: Change) -> list[str]:
        calls = [name for name, _ in reversed(change.calls.shown)][-_MOST_DEPTH:]
        return [_MORE if change.change > 0 else _LESS, *(calls or [UNKNOWN])]

    tree = _tree("growth", ((names(change), round(abs(change.change))) for change in told))
    rows = [(insight.change_cells(each), frames or [UNKNOWN]) for each, frames in _with_frames(told)]
    return _view(heading, [*insight.CHANGE_TITLES, "allocated by"], tree, rows, len(told)) | {"cool": _LESS}


def _lifetimes(snapshot: Snapshot, symbols: Symbols) -> dict[str, Any] | None:
    """Live bytes by their age, and by site."""
    if not snapshot.samples:
        return None
    lines = estimate(snapshot, lambda sample: (symbols.outside(sample.site), ages.class_of(sample)))
    of_site: dict[int, dict[int, int]] = {}
    stacks: list[tuple[list[str], int]] = []
    for line in lines:
        if line.key == NOT_SAMPLED:
            stacks.append(([NOT_SAMPLED], line.bytes))
        else:
            site, age = line.key
            of_site.setdefault(site, {})[age] = line.bytes
            stacks.append(([ages.NAMES[age], *_names(site, symbols)], line.bytes))
    classes = sorted({age for by_age in of_site.values() for age in by_age})
    rows = [row for row in insight.rows(snapshot, symbols, insight.SITE)[0] if row.line.key in of_site]

    def cells(line: Line) -> list[str]:
        by_age = of_site[line.key]
        shares = [_share(by_age[age], sum(by_age.values())) if age in by_age else "" for age in classes]
        return [byte_text(line.bytes), f"{line.samples:,}", insight.age_text(line.age), *shares]

    heading = [
        "how long ago the live blocks were allocated: their age, not the lifetime of freed blocks",
        *insight.heading(snapshot)[1:],
    ]
    titles = ["live", "samples", "mean age", *(ages.NAMES[age] for age in classes), "allocated by"]
    shown = [(cells(row.line), frames) for row, frames in _with_frames(rows)]
    view = _view(heading, titles, _tree("lifetimes", stacks), shown, len(rows))
    view["tree"]["c"].sort(key=lambda each: [*ages.NAMES, NOT_SAMPLED].index(each["n"]))  # the youngest first
    return view


def _script(data: Any) -> str:
    """JSON in which no text can end the script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def page(snapshot: Snapshot, symbols: Symbols, table: Table | None = None, difference: Difference | None = None) -> str:
    """The page, with the table that sums to the resident set and the changes since an earlier snapshot, if given."""
    views = {
        "live": _live(snapshot, symbols),
        "pinned": _pinned(snapshot, symbols),
        "growth": None if difference is None else _growth(difference),
        "lifetimes": _lifetimes(snapshot, symbols),
    }
    remarks = symbols.remarks() + ([] if difference is None else difference.remarks)
    data = {
        "title": f"hakmem: process {snapshot.process}",
        "verdict": (table.verdict.text or _NO_VERDICT) if table else "",
        "made": {
            "titles": ["", *outside_commands.CELL_TITLES],
            "rows": [[title, *cells] for title, cells in outside_commands.cells_of(table)],
        }
        if table
        else None,
        "views": {name: view for name, view in views.items() if view is not None},
        "remarks": list(dict.fromkeys(remarks)),
    }
    template = resources.files("hakmem").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return template.replace(_PLACE, _script(data))

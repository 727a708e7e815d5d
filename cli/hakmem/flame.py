"""A profile as one page of HTML that needs nothing from elsewhere: a flame graph, and the lines as a table."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from hakmem import insight
from hakmem.insight import Row
from hakmem.profile import NOT_SAMPLED, UNKNOWN
from hakmem.snapshot import Snapshot
from hakmem.symbols import Symbols

_TEMPLATE = "flame.html"
_PLACE = "/*data*/null"
_MOST_ROWS = 1000
_LEAST_SHARE = 1e-5  # of the whole: narrower calls are left out, no screen would show them
_MOST_DEPTH = 200


def _tree(rows: list[Row], symbols: Symbols) -> dict[str, Any]:
    """Calls from the outermost: name, bytes, variance, and the calls below by their names."""
    root: dict[str, Any] = {"name": "live", "bytes": 0, "below": {}}
    for row in rows:
        names = [UNKNOWN]
        if row.line.key == NOT_SAMPLED:
            names = [NOT_SAMPLED]
        elif frames := symbols.stack(row.line.key):
            names = [frame.name for frame in reversed(frames)][-_MOST_DEPTH:]
        node = root
        node["bytes"] += row.line.bytes
        for name in names:
            node = node["below"].setdefault(name, {"name": name, "bytes": 0, "below": {}})
            node["bytes"] += row.line.bytes
    return root


def _pruned(node: dict[str, Any], least: float) -> dict[str, Any]:
    below = [_pruned(each, least) for each in node["below"].values() if each["bytes"] >= least]
    below.sort(key=lambda each: -each["v"])
    return {"n": node["name"], "v": node["bytes"]} | ({"c": below} if below else {})


def _script(data: Any) -> str:
    """JSON within a script: nothing in it may end that."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def page(snapshot: Snapshot, symbols: Symbols) -> str:
    rows, count = insight.rows(snapshot, symbols, insight.SITE)
    tree = _tree(rows, symbols)
    data = {
        "title": f"hakmem: process {snapshot.process}",
        "heading": insight.heading(snapshot),
        "remarks": symbols.remarks(),
        "tree": _pruned(tree, tree["bytes"] * _LEAST_SHARE),
        "left": count - min(count, _MOST_ROWS),
        "rows": [
            {
                "live": row.line.bytes,
                "error": None if row.line.key == NOT_SAMPLED else row.line.error,
                "objects": row.line.objects,
                "age": insight.age_text(row.line.age),
                "frames": [f"{name} {place}".rstrip() for name, place in row.frames],
            }
            for row in rows[:_MOST_ROWS]
        ],
    }
    template = resources.files("hakmem").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return template.replace(_PLACE, _script(data))

"""The data for the page's script: every repetition of every pair, so that it can sort, filter, and recompute the means."""

from __future__ import annotations

from hakmem.bench.analysis import FIGURES, NOTABLE, RATE, Results
from hakmem.bench.since import Since
from hakmem.bench.workloads import lines_of_scaling

_DIGITS = 6  # more have no meaning


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")


def _values(results: Results, workload: str, allocator: str) -> dict[str, list[float]]:
    keys = (*(key for key, _, _ in FIGURES), RATE)
    found = {key: results.values(workload, allocator, key) for key in keys}
    return {key: [_short(value) for value in values] for key, values in found.items() if values}


def _by_pair(results: Results, of) -> dict[str, dict]:
    """{workload: {allocator: the result of `of`}}, without empty results."""
    return {
        workload.name: {name: told for name in results.allocators if (told := of(workload.name, name))}
        for workload in results.plain
    }


def _changes(since: Since, workload: str, allocator: str) -> dict[str, tuple[float, int]]:
    """(now / before, 1 if that is beyond the spread)"""
    changes = {key: since.change(workload, allocator, key) for key, _, _ in FIGURES}
    return {key: (_short(change.ratio), int(change.beyond)) for key, change in changes.items() if change}


def data(results: Results, since: Since | None) -> dict:
    every = [key for key, _, _ in FIGURES]
    there = {key for key in every for entry in results.plain if _any(results, entry.name, key)}
    there = there or set(every)  # if all failed: the script needs a measure to show
    return {
        "reference": results.reference,
        "notable": NOTABLE,
        "allocators": results.allocators,
        "measures": [{"key": key, "title": title, "unit": unit} for key, title, unit in FIGURES if key in there],
        "workloads": [
            {"name": entry.name, "group": entry.group, "family": entry.family, "about": entry.about} for entry in results.plain
        ],
        "failures": _by_pair(results, results.failure),
        "values": _by_pair(results, lambda workload, name: _values(results, workload, name)),
        "courses": _by_pair(results, results.course),
        "lines": [
            {"title": f"{line[0].name} to {line[-1].name}", "of": [[entry.name, entry.threads] for entry in line]}
            for line in lines_of_scaling(results.plain)
        ],
        "since": _by_pair(results, lambda workload, name: _changes(since, workload, name)) if since else None,
    }


def _any(results: Results, workload: str, key: str) -> bool:
    return any(any(results.values(workload, name, key)) for name in results.allocators)

"""Figures that a workload measures itself, read from its output; bench/workloads/figures.h writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

UNITS = ("ns", "KiB", "")

_OPERATIONS = re.compile(r"[^:]+: (\d+) operations in \d")
_LINE = re.compile(r"(figure|fact): ([^:]+): (\d+(?:\.\d+)?) ?(\w*)")


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    judged: bool  # less is better; a fact only states a condition of the run


def parse(lines: Iterable[str]) -> list[Figure]:
    """The figures among the lines, in order. Raises ValueError for a malformed figure, or a name that comes twice."""
    found: dict[str, Figure] = {}
    for line in lines:
        if not line.startswith(("figure:", "fact:")):
            continue
        match = _LINE.fullmatch(line.strip())
        if not match or match[4] not in UNITS or match[2] in found:
            raise ValueError(f"not a figure: {line.strip()}")
        kind, name, value, unit = match.groups()
        found[name] = Figure(name, float(value), unit, kind == "figure")
    return list(found.values())


def operations(lines: Iterable[str]) -> int | None:
    """The number of operations in the line that bench/workloads/workload.h writes; None if there is no such line."""
    matches = [match for line in lines if (match := _OPERATIONS.match(line))]
    return int(matches[-1][1]) if matches else None

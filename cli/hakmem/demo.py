"""The embedded demo: CPython, with its SQLite, doing two kinds of work."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from hakmem import preload

SYSTEM_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Part:
    name: str
    explanation: str
    variables: dict[str, str] = field(default_factory=dict)


PARTS = (
    Part(
        "sqlite",
        "SQLite in memory: tables, indexes, joins, deletes. SQLite takes every block from malloc;\n"
        "CPython's small objects come from its own allocator here, as they do by default.",
        {"PYTHONHASHSEED": "0"},
    ),
    Part(
        "objects",
        "Objects of every lifetime, and JSON. PYTHONMALLOC=malloc turns CPython's own small-object\n"
        "allocator off, which is not its default, so that every object comes from malloc.",
        {"PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"},
    ),
)

INTRODUCTION = (
    "One program, unmodified, under the system malloc and under hakmem in turn: CPython,\n"
    "with work for SQLite first and then for its own objects. This takes under a minute."
)


def command(part: Part) -> list[str]:
    python = SYSTEM_PYTHON if Path(SYSTEM_PYTHON).exists() else sys.executable
    return [python, "-S", "-B", str(preload.PACKAGE / "demo_workload.py"), part.name]

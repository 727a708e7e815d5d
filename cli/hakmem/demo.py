"""The embedded demo: CPython, with its SQLite, doing four kinds of work."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem import blackbox, preload
from hakmem.errors import Failure

if TYPE_CHECKING:
    from rich.table import Table

SYSTEM_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Part:
    name: str
    explanation: str
    variables: dict[str, str] = field(default_factory=dict)
    with_holders: bool = False  # also show who holds its memory


# The parts where malloc matters most come first; a part that gains nothing is shown too.
PARTS = (
    Part(
        "buffers",
        "Messages of 40 MB, received in parts, each into a growing buffer. CPython with its defaults:\n"
        "it takes objects larger than 512 bytes from malloc.",
        {"PYTHONHASHSEED": "0"},
    ),
    Part(
        "requests",
        "A server whose 8 threads answer requests in JSON. PYTHONMALLOC=malloc, which is not the default,\n"
        "turns off CPython's own small-object allocator, so that every object comes from malloc.",
        {"PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"},
        with_holders=True,
    ),
    Part(
        "sqlite",
        "SQLite in memory: tables, indexes, joins, deletes. SQLite takes every block from malloc;\n"
        "CPython's small objects come from its own allocator here, as they do by default.",
        {"PYTHONHASHSEED": "0"},
    ),
    Part(
        "objects",
        "Objects of every lifetime, and JSON, with PYTHONMALLOC=malloc, in one thread.",
        {"PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"},
    ),
)

INTRODUCTION = (
    "One program, unmodified, alternately under the system malloc and under hakmem: CPython,\n"
    "with four kinds of work. This takes under a minute."
)

HOLDERS = 3  # functions that are shown


def command(part: Part) -> list[str]:
    python = SYSTEM_PYTHON if Path(SYSTEM_PYTHON).exists() else sys.executable
    return [python, "-S", "-B", str(preload.PACKAGE / "demo_workload.py"), part.name]


def holders(part: Part, library: Path) -> Table | str:
    """Runs the part once more with a black box. Returns who held the memory at its peak, or why that is not known."""
    try:
        from hakmem import insight, snapshots, symbols
    except ImportError as error:
        return f"Showing which functions hold the memory needs {error.name}: pip install ."
    environment = preload.caller_environment() | part.variables
    environment["LD_PRELOAD"] = preload.preload_value(environment, library)
    with tempfile.TemporaryDirectory(prefix="hakmem-") as place:
        file = f"{place}/box"
        environment["HAKMEM_BLACKBOX"] = file
        quiet = subprocess.DEVNULL
        subprocess.run(command(part), env=environment, stdin=quiet, stdout=quiet, stderr=quiet, check=False)
        try:
            entries = [snapshots.parse(each.text.decode(errors="surrogateescape"), file) for each in blackbox.read(file).entries]
            # Not by resident set: as the program ends, its blocks are freed before their pages are given back.
            taken = max(entries, key=lambda entry: entry.live_bytes, default=None)
            if taken is None:
                return "Which functions held the memory cannot be shown: it ended too early."
        except Failure as failure:
            return f"Which functions held the memory cannot be shown: {failure.message}"
        rows, count = insight.rows(taken, symbols.Symbols(taken), insight.FUNCTION, HOLDERS)
        return insight.profile_table(taken, rows, count, 1)

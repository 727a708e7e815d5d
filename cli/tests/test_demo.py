"""hakmem demo: what a newcomer sees first."""

from __future__ import annotations

import re
import subprocess
import sys

from hakmem import demo, preload


def test_demo_compares_all_parts(hakmem):
    result = hakmem("demo", "--repetitions", "3")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("peak resident set") == len(demo.PARTS) == 4
    assert "PYTHONMALLOC=malloc" in result.stdout
    # Malloc matters in the first: a run by whatever else keeps the machine busy is no four times as long.
    first = result.stdout.split("peak resident set")[0]
    assert float(re.search(r"│ CPU, user \+ system .*│ +~?([\d.]+) │", first)[1]) < 0.7


def test_demo_tells_who_holds_the_memory(hakmem):
    lines = hakmem("demo", "--repetitions", "3").stdout.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("Who held its memory"))
    rows = [line for line in lines[at : at + 12] if re.match(r" *[\d.]+ MiB ", line)]
    assert len(rows) == demo.HOLDERS
    # A stripped python3 still names what it exports; what its JSON module does not export is an address.
    assert any("Py" in row for row in rows), rows
    assert sum(float(re.search(r"([\d.]+) %", row)[1]) for row in rows) > 20


def test_demo_without_names_says_what_is_missing():
    hidden = "import sys; sys.modules['elftools'] = None; from hakmem import demo; from pathlib import Path; "
    call = "print(demo.holders(demo.PARTS[1], Path(sys.argv[1])))"
    result = subprocess.run(
        [sys.executable, "-c", hidden + call, str(preload.library(None))], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("Showing which functions hold the memory needs elftools"), result

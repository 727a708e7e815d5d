"""hakmem options and hakmem stats: what the library tells, as tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hakmem.render import STATS_FIGURES

REPORT = {
    "version": "0.1.0",
    "pid": 4242,
    "resident": 8 << 20,
    "committed": 4 << 20,
    "live": 3 << 20,
    "cached": 512 << 10,
    "slab_free": 512 << 10,
    "bin_hits": 1234567,
    "sys_mmap": 3,
    "class_stats": [
        {"block_size": 16, "slab_size": 65536, "slabs": 2, "live_blocks": 1000, "refills": 17},
        {"block_size": 98765, "slab_size": 65536, "slabs": 0, "live_blocks": 0},
    ],
}


def words(text: str) -> str:
    return re.sub(r"[\s│┃]+", " ", text)


def test_stats_file_is_shown(hakmem, tmp_path):
    file = tmp_path / "stats.json"
    file.write_text(json.dumps(REPORT))
    result = hakmem("stats", str(file))
    assert (result.returncode, result.stderr) == (0, "")
    text = words(result.stdout)
    assert "hakmem 0.1.0, process 4242" in text
    assert "resident set of the process 8.0 MiB" in text
    assert "live: held by the program 3.0 MiB 75.0 %" in text
    assert "bin hits (estimate) 1,234,567" in text
    assert "mmap 3" in text
    assert "98765" not in text and "98,765" not in text  # a class never used


def test_every_figure_of_the_library_is_shown(hakmem, tmp_path):
    header = Path(__file__).parents[2] / "include" / "hakmem" / "hakmem.h"
    fields = re.search(r"typedef struct hak_stats \{(.*?)\} hak_stats_t;", header.read_text(), re.S)[1]
    names = re.findall(r"(\w+)(?=[;,])", re.sub(r"/\*.*?\*/", "", fields, flags=re.S))
    figures = sorted(set(names) - {"struct_size", "classes"})  # the two that describe the report itself
    assert len(figures) > 40 and figures == sorted(STATS_FIGURES)
    file = tmp_path / "stats.json"
    file.write_text(json.dumps(dict.fromkeys(figures, 1)))
    assert len(re.findall(r" 1(?: B)?(?: +\d+\.\d %)? *$", hakmem("stats", str(file)).stdout, re.M)) == len(figures)


def test_limits_are_shown_with_the_reason_for_giving_memory_back(hakmem):
    reason = "memory.current was 91 % of memory.max"
    limits = {"limit": 512 << 20, "limit_use": 470 << 20, "limit_level": 3, "limit_given": 120 << 20, "limit_percent": 91, "limit_looks": 1234}
    text = words(hakmem("stats", "-", input=json.dumps(REPORT | limits | {"limit_reason": reason})).stdout)
    assert "the nearest memory limit 512.0 MiB used of that limit 470.0 MiB how near it is, 0 (not near) to 3 (urgent) 3" in text
    assert f"given back near a limit 120.0 MiB percent of the limit, the most in use then 91 checks of limits 1,234 gave back 120.0 MiB: {reason}" in text
    text = hakmem("stats", "-", input=json.dumps(REPORT | {"limit_reason": ""})).stdout
    assert "limit" not in text and "gave back" not in text


def test_limit_of_the_program_itself_is_shown(hakmem):
    program = "x = bytearray(32 << 20)"
    text = words(hakmem("run", "--stats", "--", "python3", "-c", program, HAKMEM_LIMIT_SOFT="20M").stderr)
    assert "the nearest memory limit 20.0 MiB" in text and re.search(r"used of that limit [34]\d\.\d MiB", text)


def test_stats_of_several_processes_are_shown_in_turn(hakmem):
    result = hakmem("stats", "-", input=json.dumps(REPORT) + "\n" + json.dumps(REPORT | {"pid": 4243}, indent=1))
    assert "process 4242" in result.stdout
    assert "process 4243" in result.stdout


@pytest.mark.parametrize("text", ["", "{", "[]", "nonsense", "[" * 100_000, '{"live": ' + "9" * 5000 + "}"])
def test_file_that_is_no_report_is_one_line(hakmem, text):
    result = hakmem("stats", "-", input=text)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("hakmem: <stdin>: not a report of hakmem")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("live", "x"),
        ("live", None),
        ("live", 1.5),
        ("live", -1),
        ("committed", 1 << 64),
        ("sys_mmap", "x"),
        ("limit_given", "x"),
        ("limit_reason", 1),
        ("class_stats", 1),
        ("class_stats", [1]),
        ("class_stats", [{"refills": []}]),
        ("heap_stats", {"slabs": 1}),
        ("heap_stats", [{"slabs": "1"}]),
    ],
)
def test_report_with_something_else_for_a_figure_is_one_line(hakmem, key, value):
    result = hakmem("stats", "-", input=json.dumps(REPORT | {key: value}))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("hakmem: <stdin>: not a report of hakmem: ")
    assert result.stderr.count("\n") == 1


def test_what_a_later_version_adds_is_left_out(hakmem):
    later = REPORT | {"weather": "fair", "class_stats": [REPORT["class_stats"][0] | {"mood": None}]}
    assert hakmem("stats", "-", input=json.dumps(later)).stdout == hakmem("stats", "-", input=json.dumps(REPORT)).stdout


def test_missing_file_is_refused(hakmem):
    result = hakmem("stats", "no/such/file")
    assert result.returncode == 2
    assert "no/such/file" in result.stderr


def test_options_are_those_of_the_library(hakmem):
    result = hakmem("options")
    assert (result.returncode, result.stderr) == (0, "")
    assert "HAKMEM_STATS" in result.stdout


def test_options_in_full(hakmem):
    from hakmem import library, preload

    listed = library.options(preload.library())
    output = hakmem("options").stdout  # to a pipe
    assert listed
    for option in listed:
        name = f"HAKMEM_{option['name'].upper().removeprefix('HAKMEM_')}"
        assert any(name in line and option["help"] in line for line in output.splitlines())


def test_what_a_program_writes_can_be_shown(hakmem, tmp_path):
    file = tmp_path / "stats.json"
    program = ("python3", "-c", "x = [str(i) for i in range(100000)]")
    written = hakmem("run", "--stats", "--", *program, HAKMEM_STATS_FILE=str(file))
    assert (written.returncode, written.stderr) == (0, "")
    shown = hakmem("stats", str(file))
    assert shown.returncode == 0
    assert "size classes in use" in shown.stdout

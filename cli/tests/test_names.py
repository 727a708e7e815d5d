"""Names of processes and files that are no text: commands read past them, and show them so that nothing happens to a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from heap import CODE, Heap, mixed, of_code, text_of
from processes import compiled, running
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from hakmem import memory, names, snapshots, top
from hakmem.pages import mappings
from hakmem.symbols import Symbols

COMM = b"\xff\x1b[/x]\n\x1c\xe2\x80\xa8z"
SHOWN = "\\xff\\x1b[/x]\\n\\x1c\\u2028z"
FILE = b"odd\xff\x1c\xc2\x85\xe2\x80\xa8\x1b[2J [y].so"
PROGRAM = """
import ctypes, mmap, sys, time
comm, path = (bytes.fromhex(word) for word in sys.argv[1:])
ctypes.CDLL(None).prctl(15, comm, 0, 0, 0)
with open(path, "rb") as file:
    there = mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
print("ready", flush=True)
time.sleep(600)
"""
HEAP = Heap({64: mixed({2: 30_000, 3: 10_000}, free=500)})


@contextlib.contextmanager
def odd(folder: Path) -> Iterator[int]:
    """A process with such a name that has mapped a file with such a one."""
    path = os.fsencode(folder) + b"/" + FILE
    with open(path, "wb") as file:
        file.write(bytes(4096))
    with running(sys.executable, "-c", PROGRAM, COMM.hex(), path.hex()) as process:
        yield process.pid


def is_shown(text: str) -> bool:
    """Whether a terminal takes it for letters alone."""
    return all(letter.isprintable() or letter == "\n" for letter in text)


def test_a_line_feed_alone_ends_a_line(tmp_path):
    file = tmp_path / "maps"
    file.write_bytes(b"one\x1c\x1d\x1e\x0b\x0c\r\xc2\x85\xe2\x80\xa8one\n\xff\n\nlast")
    assert names.kernel_lines(file) == ["one\x1c\x1d\x1e\x0b\x0c\r\x85\u2028one", "\udcff", "", "last"]
    file.write_bytes(b"")
    assert names.kernel_lines(file) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [("größe <T>", "größe <T>"), ("a\nb\x1b\udcff", "a\\nb\\x1b\\xff"), ("\u2028\u202e\x85", "\\u2028\\u202e\\x85")],
)
def test_what_is_no_letter_is_shown_as_its_escape(name, shown):
    assert names.printable(name) == shown


def test_views_of_all_processes_go_on(hakmem, tmp_path):
    with odd(tmp_path) as pid:
        listed, as_json = hakmem("top"), hakmem("top", "--json")
        told, file = hakmem("metrics"), tmp_path / "hakmem.prom"
        written = hakmem("metrics", "--textfile", str(file), str(pid))
    assert [each.returncode for each in (listed, as_json, told, written)] == [0] * 4, listed.stderr + told.stderr
    (line,) = [line for line in listed.stdout.splitlines() if line.split()[:1] == [str(pid)]]
    assert SHOWN in line and is_shown(listed.stdout)
    assert {each["process"]: each["name"] for each in json.loads(as_json.stdout)}[pid] == SHOWN
    for families in (parse_open(told.stdout), parse(file.read_text(encoding="utf-8"))):
        (name,) = {each.labels["name"] for family in families for each in family.samples if each.labels["pid"] == str(pid)}
        assert name == SHOWN


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_views_of_one_process(hakmem, tmp_path, encoding):
    with odd(tmp_path) as pid:
        (area,) = [area for area in memory.Process(pid).areas if area.path.endswith("[y].so")]
        assert os.fsencode(area.path).endswith(b"/" + FILE)
        assert [each.area for each in mappings(Path(f"/proc/{pid}")) if each.area.path == area.path] == [area]
        assert top.name_of(pid) == SHOWN
        outs = [tmp_path / out for out in ("out.html", "out.pb", "out.otlp", "out")]
        done = [
            hakmem("inspect", str(pid), hex(area.start), PYTHONIOENCODING=encoding),
            hakmem("resident", str(pid), PYTHONIOENCODING=encoding),
            hakmem("profile", str(pid), PYTHONIOENCODING=encoding),
            *(
                hakmem("profile", option, str(out), str(pid))
                for option, out in zip(("--html", "--pprof", "--otlp", "--save"), outs)
                if sys.version_info >= (3, 10) or option != "--otlp"
            ),
        ]
    assert [each.returncode for each in done] == [0] * len(done), [each.stderr for each in done]
    assert "odd\\xff\\x1c\\x85\\u2028\\x1b[2J [y].so+0x0" in done[0].stdout
    assert all(is_shown(each.stdout + each.stderr) for each in done)
    assert area.path in [mapping.path for mapping in snapshots.read(str(outs[-1])).mappings]


def test_names_in_files_are_shown_so_too(hakmem, tmp_path):
    """A function's, a heap's and a file's, in tables, remarks and errors."""
    taken = HEAP.sampled(1)
    taken.mappings = [of_code("/odd\udcff\x1b[2J")]
    file = tmp_path / "heap\x1b"
    file.write_bytes(text_of(taken).replace("sites ", "heap 2 \x1b[2J\nsites ", 1).encode(errors="surrogateescape"))
    by_site, by_tag = hakmem("profile", str(file)), hakmem("profile", "--by", "tag", str(file))
    assert "odd\\xff\\x1b[2J" in by_site.stdout and "odd\\xff\\x1b[2J" in by_site.stderr
    assert "heap \\x1b[2J" in by_tag.stdout
    file.write_text("nonsense")
    assert "/heap\\x1b: not a snapshot" in (missing := hakmem("profile", str(file))).stderr
    assert all(is_shown(each.stdout + each.stderr) for each in (by_site, by_tag, missing))


def test_functions_made_at_run_time(tmp_path):
    (tmp_path / "perf-77.map").write_bytes(f"{CODE:x} 1000 py::a\x1c\u2028b".encode() + b"\xff\n")
    taken = HEAP.sampled(1)
    found = Symbols(taken, jit_folder=tmp_path)
    assert found.stack(2)[0].name == "py::a\\x1c\\u2028b\\xff"


@pytest.mark.parametrize("name", ["two\nlines", "two\\012lines"], ids=["line feed", "as the kernel writes one"])
def test_functions_of_a_program_whose_path_has_a_line_feed_have_names(hakmem, tmp_path, name):
    folder, file = tmp_path / name, tmp_path / "heap"
    folder.mkdir()
    program = compiled(tmp_path).rename(folder / "known")
    with running(program, "big", "64") as process:
        hakmem("profile", "--save", str(file), str(process.pid))
    assert "\\012lines/known" in file.read_text()
    assert re.search(r"\bmain\b", hakmem("profile", str(file)).stdout)

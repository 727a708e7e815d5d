"""Files that were cut or damaged, and processes that hold what can't be a heap: each is told in one line, and ends nothing else."""

from __future__ import annotations

import os
import random
import resource
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elftools.common.exceptions import DWARFError
from heap import Heap, mixed, of_code, text_of
from processes import LIBRARY, compiled

from hakmem import dwarf, plausible
from hakmem.elf import Module, open_named
from hakmem.symbols import Symbols

TESTS = Path(__file__).parent
SEED = 20_260_101
ROOM = 1 << 30  # bytes that a reading may take beside what there is: more is asked for by a forged number alone
ABSURD = [0, 1, 1 << 31, (1 << 32) - 1, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
HEAP = Heap({64: mixed({2: 3000, 3: 1000}, free=50), 4096: mixed({2: 100})}, [(4, 50 << 10), (5, 3 << 20)])


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("known"), TESTS / "known.c", "-g")


@pytest.fixture
def little_room(monkeypatch) -> Iterator[None]:
    """A reading that takes memory by what a forged number says fails, whatever this machine has."""
    monkeypatch.setattr(plausible, "READ_MOST", ROOM // 4)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


# ---- Mutations ----


def replace_number(data: bytearray, draw: random.Random) -> None:
    size = draw.choice((1, 4, 8))
    at = draw.randrange(max(1, len(data) - size)) & -size
    data[at : at + size] = (draw.choice(ABSURD) % (1 << 8 * size)).to_bytes(size, "little")


def flip(data: bytearray, draw: random.Random) -> None:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def take_out(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data))
    del data[at : at + draw.choice((1, 4, 8, 100))]


def mutations(data: bytes, count: int, *more: Callable) -> Iterator[bytes]:
    draw = random.Random(SEED)
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(draw.choice((1, 1, 3))):
            if changed:
                draw.choice((replace_number, flip, flip, cut, take_out, *more * 3))(changed, draw)
        yield bytes(changed)


# ---- Files that a process names ----


def test_what_is_no_regular_file_is_not_there(hakmem, tmp_path):
    """Nobody writes to the pipe: to open it would wait for good."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/null")):
        with pytest.raises(FileNotFoundError):
            open_named(path)
    taken = HEAP.sampled(1)
    taken.mappings = [of_code(str(pipe), "ab" * 20)]
    file = tmp_path / "heap"
    file.write_text(text_of(taken))
    done = hakmem("profile", str(file))
    assert done.returncode == 0 and f"{pipe}: it can't be opened: it is no regular file" in done.stderr


def test_pipes_in_place_of_other_named_files(tmp_path):
    taken = HEAP.sampled(1)
    for path in (tmp_path / "perf-77.map", tmp_path / ".build-id" / "ab" / f"{'ab' * 19}.debug"):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
    found = Symbols(taken, jit_folder=tmp_path)
    found.resolve_sites([2])
    assert found.stack(2)[0].name.startswith("0x")
    assert Module(str(LIBRARY), "ab" * 20, 0, tmp_path).problem


def test_damaged_programs_have_no_symbols(program, tmp_path, little_room):
    whole = program.read_bytes()
    known = Module(str(program), "")
    build_id = subprocess.run(["readelf", "-n", program], capture_output=True, text=True).stdout.partition("Build ID: ")[2].split()[0]
    places = [symbol.start for symbol in known._symbols if symbol.size][:40]
    file = tmp_path / "program"
    headers = struct.unpack_from("<Q", whole, 40)[0]  # of sections
    draw = random.Random(SEED)
    for number in range(300):
        data = bytearray(whole)
        if number % 3 == 0:
            part = data[headers:]
            replace_number(part, draw)
            data[headers:] = part
        elif number % 3 == 1:
            part = data[:64]
            replace_number(part, draw)
            data[:64] = part
        else:
            data = bytearray(next(mutations(bytes(data[draw.randrange(64) :]), 1))) if number % 30 == 2 else data
            for _ in range(20):
                flip(data, draw)
        file.write_bytes(data)
        module = Module(str(file), build_id)
        for place in places:
            module.symbol_at(place)
            module.calls_at(place)
        assert "\n" not in module.problem


def test_a_damaged_program_is_a_remark(hakmem, program, tmp_path):
    file, heap = tmp_path / "program", tmp_path / "heap"
    file.write_bytes(program.read_bytes()[:2000])
    taken = HEAP.sampled(1)
    taken.mappings = [of_code(str(file), "ab" * 20)]
    heap.write_text(text_of(taken))
    done = hakmem("profile", str(heap))
    assert done.returncode == 0 and f"{file}: it is no program or library" in done.stderr and "Traceback" not in done.stderr


def test_a_file_of_holes_with_any_size_in_its_headers(program, tmp_path, little_room):
    data = bytearray(program.read_bytes())
    data[60:62] = bytes(2)  # the first section's header says how many there are
    (headers,) = struct.unpack_from("<Q", data, 40)
    data[headers + 32 : headers + 40] = (1 << 50).to_bytes(8, "little")
    file = tmp_path / "program"
    file.write_bytes(data)
    os.truncate(file, 1 << 40)
    assert "sections" in Module(str(file), "").problem


def test_entries_that_lead_in_a_circle_end():
    class Entry:
        def __init__(self, offset: int, below: tuple = ()) -> None:
            self.offset, self.below = offset, below

        def iter_children(self):
            return iter(self.below)

    entries = [Entry(20), Entry(30), Entry(20)]
    with pytest.raises(DWARFError, match="circle"):
        list(dwarf._children(Entry(10, entries)))
    assert list(dwarf._children(Entry(10, entries[:2]))) == entries[:2]

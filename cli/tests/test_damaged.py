"""Files that were cut or damaged, and processes that hold what can't be a heap: each is told in one line, and ends nothing else."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import resource
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elftools.common.exceptions import DWARFError
from heap import Heap, mixed, of_code, pin, text_of
from processes import LIBRARY, compiled, running
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from test_metrics import only, samples

from hakmem import blackbox, diff, dwarf, flame, insight, inspection, memory, outside, plausible, pprof_files, resident, snapshots, top
from hakmem.elf import Module, open_named
from hakmem.errors import Failure
from hakmem.plausible import Damaged
from hakmem.symbols import Symbols

TESTS = Path(__file__).parent
SEED = 20_260_101
ROOM = 1 << 30  # bytes that a reading may take beside what there is: more is asked for by a forged number alone
ABSURD = [0, 1, 1 << 31, (1 << 32) - 1, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
WORDS = [b"0", b"-1", b"1", str(1 << 60).encode(), str(1 << 64).encode(), b"9" * 30, b"nan", b"0x", b"", b"\xff"]
HEAP = Heap({64: mixed({2: 3000, 3: 1000}, free=50), 4096: mixed({2: 100})}, [(4, 50 << 10), (5, 3 << 20)])


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("known"), TESTS / "known.c", "-g")


@pytest.fixture(scope="module")
def held(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("held"), TESTS / "held.c")


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


def replace_word(data: bytearray, draw: random.Random) -> None:
    """Of a text: a number of a line."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    words = lines[at].split(b" ")
    words[draw.randrange(len(words))] = draw.choice(WORDS)
    lines[at] = b" ".join(words)
    data[:] = b"\n".join(lines)


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


def ends(command: Callable[[], object]) -> bool:
    """Whether it ends well; a failure is one line, and was not for lack of memory."""
    try:
        command()
    except Failure as failure:
        assert "\n" not in failure.message and not isinstance(failure.__cause__, MemoryError), failure.message
        return False
    return True


def use(taken: snapshots.Snapshot) -> None:
    """All that commands make of a snapshot."""
    names = Symbols(taken)
    table = resident.of_snapshot(taken)
    flame.page(taken, names, table, diff.compare(taken, snapshots.parse(text_of(HEAP.sampled(2)))) if taken.rate else None)
    pprof_files.encode(taken, names)
    for by in (insight.SITE, insight.FUNCTION, insight.TAG):
        insight.rows(taken, names, by)
    insight.allocated_rows(taken, names, insight.SITE)
    insight.heading(taken)
    assert snapshots.parse(snapshots.text_of(taken), "again").live_bytes == taken.live_bytes
    with contextlib.suppress(ImportError):
        from hakmem import otlp

        otlp.encode(taken, names)


# ---- Snapshots and other files ----


def a_snapshot() -> bytes:
    taken = pin(HEAP.sampled(1), HEAP, every=2)
    taken.mappings = [of_code("/opt/program", "ab" * 20)]
    more = ["event 2 3 30 300", "event_of 2 1 3 30 300", "allocated 1 16 40 400", "thinned 5", "resident 1000000", "group 5", "own 7"]
    return text_of(taken).replace("\nsites", "".join(f"\n{line}" for line in more) + "\nsites", 1).encode()


def test_damaged_snapshots(little_room):
    ended = [
        ends(lambda: use(snapshots.of_bytes(data, "heap"))) for data in mutations(a_snapshot(), 300, replace_word)
    ]
    assert 20 < sum(ended) < 280


def box_of(*texts: bytes) -> bytes:
    """A black box with these entries."""
    import zlib

    head, slot = 512, 1 << 16
    data = b"hakmem-blackbox 1\nprocess 77\nhead_bytes %d\nslots %d\nslot_bytes %d\n" % (head, len(texts), slot)
    data = data.ljust(head, b"\0")
    for number, text in enumerate(texts):
        line = b"entry %d %d %d 1800000000000 1000000 2000000 0 time\n" % (number, len(text), zlib.crc32(text))
        data += (line.ljust(head, b"\0") + text).ljust(slot, b"\0")
    return data


def test_damaged_black_boxes(little_room):
    small = Heap({64: mixed({2: 300})})
    whole = box_of(*(text_of(small.sampled(seed)).encode() for seed in (1, 2)))
    assert ends(lambda: use(snapshots.of_bytes(whole, "box")))
    # In the head, where there are numbers, and anywhere.
    for data in mutations(whole[:600], 300, replace_word):
        ends(lambda data=data: use(snapshots.of_bytes(data + whole[600:], "box")))
        with contextlib.suppress(Failure):
            for entry in blackbox.parse(data + whole[600:], "box").entries:
                assert entry.time < 1 << 33
    for data in mutations(whole, 100):
        ends(lambda data=data: use(snapshots.of_bytes(data, "box")))


def test_damaged_profiles_of_pprof(little_room):
    taken = HEAP.sampled(1)
    packed = pprof_files.encode(taken, Symbols(taken))
    before = pprof_files.decode(packed, "before")
    for data in mutations(packed, 150):
        ends(lambda data=data: diff.compare(before, pprof_files.decode(data, "after")))
    for data in mutations(gzip.decompress(packed), 300):
        ends(lambda data=data: diff.compare(before, pprof_files.decode(data, "after")))


def test_a_profile_that_unpacks_to_more_than_any_has(little_room, monkeypatch):
    monkeypatch.setattr(pprof_files, "_UNPACKED_MOST", 1 << 20)
    with pytest.raises(Damaged, match="more than"):
        pprof_files.decode(gzip.compress(bytes(16 << 20)) * (2 * ROOM >> 24), "bomb")


def test_a_profile_that_holds_less_than_nothing():
    """As go tool pprof writes it of a difference."""
    taken = HEAP.sampled(1)
    profile = pprof_files._message("Profile").FromString(gzip.decompress(pprof_files.encode(taken, Symbols(taken))))
    profile.sample[0].value[0] = -1
    with pytest.raises(Damaged, match="negative values"):
        pprof_files.decode(profile.SerializeToString(), "difference")


def test_a_call_that_returns_to_nowhere():
    taken = HEAP.sampled(1)
    taken.sites[2] = (1, 0)
    use(taken)


def test_what_was_allocated_of_no_bytes():
    lines = b"\nevent 2 3 30 0\nevent_of 2 1 3 30 0\nallocated 1 0 40 0\nsites"
    taken = snapshots.of_bytes(text_of(HEAP.sampled(1)).encode().replace(b"\nsites", lines, 1), "heap")
    names = Symbols(taken)
    (row,) = insight.allocated_rows(taken, names, insight.SITE)
    assert (row.sums.objects, row.sums.bytes, row.sums.error) == (40, 0, 0)


@pytest.mark.parametrize(
    "line",
    [
        "time -1",
        "class 16 65536 1 -1 0 0 0",
        "page_bytes 0",
        f"survivor {1 << 60} 2 1 0",
        f"event 2 {1 << 60} {1 << 62} {1 << 62}\nevent 3 1 {1 << 62} {1 << 62}",
        f"tracked 0x10 {1 << 60} 1 1 1 0x1",
        "tracked 0x10 64 1 1 1 0x1" + "0" * 30,
    ],
)
def test_commands_say_so_in_a_line(hakmem, tmp_path, line):
    file, good = tmp_path / "heap", tmp_path / "good"
    good.write_bytes(a_snapshot())
    file.write_bytes(a_snapshot().replace(b"\nsites", b"\n" + line.encode() + b"\nsites", 1))
    for words in (["profile", file], ["resident", file], ["diff", good, file], ["profile", "--html", tmp_path / "out", file]):
        done = hakmem(*map(str, words))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert done.stderr.startswith(f"hakmem: {file}: ")


def test_a_window_that_would_have_words_written_anywhere():
    data = box_of(text_of(HEAP.sampled(1)).encode()).replace(b"\nslots", b"\nask_at %d\nslots" % (1 << 60), 1)
    with pytest.raises(Damaged, match="black box can't be true"):
        blackbox.parse(data, "window")


# ---- Cores ----


@pytest.fixture(scope="module")
def core(program, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("core")
    if not shutil.which("gcore"):
        pytest.skip("no gdb")
    with running(program, "rest", folder / "heap") as process:
        subprocess.run(["gcore", "-o", folder / "core", str(process.pid)], check=True, capture_output=True)
        return folder / f"core.{process.pid}"


def read_core(path: str) -> None:
    source = memory.Core(path)
    table, taken = resident.of_memory(source, pinned=True)
    insight.heading(taken)
    with memory.whole(source):
        inspection.inspect(outside.Reader(source), taken.samples[0].address if taken.samples else 1 << 40)


def of_descriptor(core: Path) -> list[tuple[int, int]]:
    """Where in the file the tables lie that describe the heap, the region's record, and the heap's first records: offsets and bytes."""
    source = memory.Core(str(core))
    reader = outside.Reader(source)
    names = reader.names
    places = [(names.address, 96), (names.place("region"), 128), (names.place("site.count"), 8)]
    tables = names.memory.bytes_at(names.address, 128)
    places += [(at, stride * count) for at, stride, count in (struct.unpack_from("<QII", tables, 32 + 16 * i) for i in range(5))]
    places += [(names.zone(name)[0], 4096) for name in ("units", "samples", "superslabs", "remotes")]
    places += [(reader.heap().heaps[0], 2048)]
    found = []
    for address, size in places:
        start, _, offset = next(part for part in source._parts if part[0] <= address < part[1])
        found.append((offset + address - start, size))
    return found


def test_damaged_cores(core, tmp_path, little_room):
    """Where numbers are that lead on: the headers, and the tables and records of hakmem."""
    file = tmp_path / "core"
    shutil.copyfile(core, file)
    draw, ended = random.Random(SEED), 0
    with open(file, "r+b", buffering=0) as changed:
        for at, size in [(0, 64), (64, 56 * 20), *of_descriptor(core)]:
            before = os.pread(changed.fileno(), size, at)
            for _ in range(15):
                data = bytearray(before)
                draw.choice((replace_number, replace_number, flip))(data, draw)
                os.pwrite(changed.fileno(), data, at)
                ended += ends(lambda: read_core(str(file)))
            os.pwrite(changed.fileno(), before, at)
    assert ended > 20
    assert ends(lambda: read_core(str(file)))


def test_a_core_that_was_cut_short_says_so(hakmem, core, tmp_path):
    file, size = tmp_path / "core", core.stat().st_size
    for left in (100, 3000, size // 2):
        shutil.copyfile(core, file)
        os.truncate(file, left)
        for words in (["profile", file], ["resident", file], ["inspect", file, "0x10"]):
            done = hakmem(*map(str, words))
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert f"{file}: the core is cut short: it has {left} of" in done.stderr


@pytest.mark.parametrize("program_of", ["zstd", "lz4", "xz", "gzip"])
def test_a_compressed_core_says_what_to_do(hakmem, tmp_path, program_of):
    if not shutil.which(program_of):
        pytest.skip(f"no {program_of}")
    file = tmp_path / "core.packed"
    packed = subprocess.run([program_of, "-c"], input=b"\x7fELF" * 100, capture_output=True, check=True).stdout
    file.write_bytes(packed)
    for words in (["profile", file], ["resident", file], ["inspect", file, "0x10"]):
        done = hakmem(*map(str, words))
        assert (done.returncode, done.stderr) == (2, f"hakmem: {file}: compressed; decompress first with {program_of} -d\n")


# ---- Processes ----


def forge(process: int, where: int, number: int, size: int = 8) -> None:
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as file:
        file.seek(where)
        file.write(number.to_bytes(size, "little"))


def row_of(names, table: str, name: str) -> int:
    """The address of a value, or of a field's size, in the descriptor's tables."""
    index = ("values", "fields", "places", "zones", "classes").index(table)
    address, stride, count = struct.unpack("<QII", names.memory.bytes_at(names.address + 32 + 16 * index, 16))
    rows = [address + stride * row for row in range(count)]
    return next(row for row in rows if names.memory.bytes_at(row, 24).rstrip(b"\0").decode() == name) + 24


FORGED = {
    "units": lambda names: (names.place("region") + names.field("region.units")[0], 1 << 31, 4),
    "base": lambda names: (names.place("region") + names.field("region.base")[0], (1 << 64) - 1, 8),
    "unit bytes": lambda names: (row_of(names, "values", "unit.bytes"), 0, 8),
    "state bits": lambda names: (row_of(names, "values", "sample.state_bits"), 1 << 60, 8),
    "clock": lambda names: (row_of(names, "values", "sample.clock_ms"), 0, 8),
    "chunk": lambda names: (row_of(names, "values", "site.chunk"), 0, 8),
    "field": lambda names: (row_of(names, "fields", "bin") + 4, (1 << 32) - 1, 4),
    "number": lambda names: (row_of(names, "fields", "unit.head") + 4, 3, 4),
    "page": lambda names: (names.place("page_bytes"), 0, 8),
    "large": lambda names: (names.zone("units")[0] + names.field("unit.bytes")[0], (1 << 64) - 1, 8),
}


@pytest.mark.parametrize("which", FORGED)
def test_a_forged_heap_is_told(held, which, little_room):
    with running(held, "leak") as process, contextlib.closing(memory.Process(process.pid)) as source:
        names = outside.Reader(source).names
        if which == "large":
            forge(process.pid, names.zone("units")[0] + names.field("unit.kind")[0], outside.Reader(source).value("kind.large"), 1)
        forge(process.pid, *FORGED[which](names))
        with pytest.raises(Failure) as failed:
            outside.read(source)
        assert failed.value.message.startswith(f"process {process.pid}: ") and "\n" not in failed.value.message
        assert not isinstance(failed.value.__cause__, MemoryError)


@pytest.mark.parametrize("which", ["units", "unit bytes", "state bits"])
def test_views_of_all_go_on(hakmem, held, which):
    with running(held, "leak") as forged, running(held, "leak") as other:
        with contextlib.closing(memory.Process(forged.pid)) as source:
            forge(forged.pid, *FORGED[which](outside.Reader(source).names))
        listed, as_json, told, one = (
            hakmem(*words) for words in (["top"], ["top", "--json"], ["metrics"], ["resident", str(forged.pid)])
        )
    assert (one.returncode, one.stderr.count("\n")) == (2, 1) and "can't be true" in one.stderr
    assert [each.returncode for each in (listed, as_json, told)] == [0, 0, 0], listed.stderr
    lines = {line.split()[0]: line for line in listed.stdout.splitlines() if line.strip()}
    assert "can't be true" in lines[str(forged.pid)] and "the program holds it" in lines[str(other.pid)]
    assert f"process {forged.pid}: " in as_json.stderr and as_json.stderr.count("\n") == 1
    found = samples(parse_open(told.stdout))
    assert only(found, "hakmem_readable", forged.pid) == 0 and only(found, "hakmem_readable", other.pid) == 1


def test_one_that_is_linked_with_hakmem_is_listed_too(held, monkeypatch):
    """Of such nothing but its descriptor says that it has hakmem."""
    monkeypatch.setattr(top, "_has_hakmem", lambda _: False)
    with running(held, "leak") as process, contextlib.closing(memory.Process(process.pid)) as source:
        forge(process.pid, *FORGED["unit bytes"](outside.Reader(source).names))
        found = top.look(process.pid)
    assert found.damaged and top.is_of_hakmem(found)


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
    assert done.returncode == 0 and f"{pipe}: it can't be opened: it is not a regular file" in done.stderr


def test_pipes_in_place_of_other_named_files(tmp_path):
    taken = HEAP.sampled(1)
    for path in (tmp_path / "perf-77.map", tmp_path / ".build-id" / "ab" / f"{'ab' * 19}.debug"):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
    found = Symbols(taken, jit_folder=tmp_path)
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
    assert done.returncode == 0 and f"{file}: it is not a program or library" in done.stderr and "Traceback" not in done.stderr


def test_a_file_of_holes_with_any_size_in_its_headers(program, tmp_path, little_room):
    data = bytearray(program.read_bytes())
    data[60:62] = bytes(2)  # the first section's header says how many there are
    (headers,) = struct.unpack_from("<Q", data, 40)
    data[headers + 32 : headers + 40] = (1 << 50).to_bytes(8, "little")
    file = tmp_path / "program"
    file.write_bytes(data)
    os.truncate(file, 1 << 40)
    assert "sections" in Module(str(file), "").problem


def test_processes_are_told_once(hakmem, held):
    with running(held, "leak") as process:
        found = samples(parse_open(hakmem("metrics", "--functions", "0", str(process.pid), str(process.pid)).stdout))
    assert only(found, "hakmem_readable", process.pid) == 1


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "ü" * 70, "\udcff"])
def test_hosts_that_are_no_names(hakmem, host):
    done = hakmem("metrics", "--listen", f"{host}:0")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "not an address" in done.stderr


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

"""The table that sums to the resident set, its verdicts, and what lies at an address."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from heap import Heap, mixed, text_of
from processes import compiled, running
from rich.console import Console

from hakmem import elsewhere, inspection, memory, outside, outside_commands, outside_pinned, pages, resident
from hakmem.memory import Process
from hakmem.pages import Mapped
from hakmem.resident import CACHE, FRAGMENTATION, HUGE, OTHER, PAGE_CACHE, PROGRAM, Row, Table, judge
from hakmem.snapshots import Snapshot

TESTS = Path(__file__).parent
MUCH = 56 << 20
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.fixture(scope="module")
def held(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("held"), TESTS / "held.c")


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("known"))


def rollup(process: int) -> int:
    """The kernel's own sum."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(re.search(r"^Rss:\s+(\d+) kB", text, re.M)[1]) << 10


REASONS = [
    ("leak", {}, PROGRAM, "asked", "are live, as requested"),
    ("cache", {"HAKMEM_DECAY_MS": "-1"}, CACHE, "spans", "HAKMEM_DECAY_MS=-1"),
    ("cache", {"HAKMEM_DECAY_MS": "60000"}, CACHE, "spans", r"they are given back within \d\d\.\d s"),
    ("pinned", {}, FRAGMENTATION, "slab_free", "free blocks on pages that a few live ones keep"),
    ("huge", {"HAKMEM_HUGE": "1"}, HUGE, "huge", "HAKMEM_HUGE=0"),
    ("mmap", {}, OTHER, "anonymous", "other anonymous mappings"),
    ("beside", {}, OTHER, "anonymous", "other anonymous mappings"),
    ("stacks", {}, OTHER, "stacks", "thread stacks"),
    ("busy", {}, OTHER, "stacks", "thread stacks"),
]


@pytest.mark.parametrize(
    "reason, variables, kind, key, text", REASONS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_reason_has_its_verdict_and_the_table_sums(held, reason, variables, kind, key, text):
    if reason == "huge" and (not _THP.exists() or "[never]" in _THP.read_text()):
        pytest.skip("no huge pages")
    with running(held, reason, **variables) as process:
        table, taken = resident.of_memory(Process(process.pid))
        kernel = rollup(process.pid)
    total = sum(row.resident for row in table.rows)
    assert total == table.total
    assert abs(total - kernel) <= max(kernel // 200, 1 << 20)
    assert all(row.resident >= 0 for row in table.rows)
    assert table.of(key) > (MUCH if reason != "huge" else MUCH // 2)
    assert table.of(key) > 0.8 * total
    assert table.verdict.kind == kind
    assert re.search(text, table.verdict.text)
    assert taken.live_bytes == 0 or reason != "cache"


def test_what_lies_right_above_a_programs_data_is_none_of_it(held):
    with running(held, "beside") as process:
        lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        table, _ = resident.of_memory(Process(process.pid))
    data = max(index for index, line in enumerate(lines) if line.endswith("/held") and " rw-p " in line)
    start, end = (int(word, 16) for word in lines[data + 1].split()[0].split("-"))
    assert end - start > MUCH, "the kernel has made one mapping of both"
    assert sum(row.resident for row in table.rows) == table.total
    assert table.of("anonymous") >= 64 << 20
    assert 2 << 20 <= table.of("data") < 4 << 20  # with the program's own `blocks`


def test_a_process_at_work_has_a_table_that_sums(known):
    with running(known, "churn") as process:
        for _ in range(20):
            table, _ = resident.of_memory(Process(process.pid))
            total = sum(row.resident for row in table.rows)
            assert total == table.total
            assert abs(table.of("moved")) < 0.1 * total


def test_every_zone_is_hakmems_own(known):
    with running(known, "big", "64") as process:
        reader = outside.Reader(Process(process.pid))
        heap = reader.heap(with_entries=True)
        first = min(reader.names.zone(name)[0] for name in reader.names.zones)
        last = max(reader.names.zone(name)[0] for name in reader.names.zones)
        starts = [area.start for area in reader.memory.areas if first - (1 << 30) < area.start < last + (1 << 30)]
        kinds = {start: inspection.inspect(reader, start)[0].kind for start in starts}
    assert len(kinds) >= 5 and set(kinds.values()) == {inspection.METADATA}


def test_records_of_tracked_slabs_are_hakmems_own(known):
    of = {}
    for track in ("0", "1"):
        with running(known, "big", "64", HAKMEM_TRACK=track) as process:
            table, _ = resident.of_memory(Process(process.pid))
            of[track] = table.of("meta"), table.of("anonymous")
    assert of["1"][0] > of["0"][0] + (1 << 20)
    assert of["1"][1] < of["0"][1] + (64 << 10)


@pytest.mark.parametrize("reason", ["leak", "cache"], ids=["live", "ended"])
def test_records_are_hakmems_own_also_of_slabs_that_have_ended(held, reason):
    of = {}
    for track in ("0", "1"):
        with running(held, reason, HAKMEM_TRACK=track, HAKMEM_DECAY_MS="0", HAKMEM_INSIGHT="2") as process:
            reader = outside.Reader(Process(process.pid))
            slabs = len(reader.heap().slabs)
            table, _ = resident.of_memory(Process(process.pid))
            of[track] = table.of("meta"), table.of("anonymous")
    assert slabs > 1000 if reason == "leak" else slabs < 100
    assert of["1"][0] > of["0"][0] + (30 << 16)  # eight bytes for each block
    assert of["1"][1] < of["0"][1] + (64 << 10)


def test_an_older_library_tells_where_records_of_slabs_that_are_there_lie(held):
    with running(held, "leak", HAKMEM_TRACK="1", HAKMEM_INSIGHT="2") as process:
        reader = outside.Reader(Process(process.pid))
        heap = reader.heap()
        chunks = outside_pinned.records(reader, heap)
        del reader.names.places["track.chunks"]
        there = outside_pinned.records(reader, heap)
    assert 30 << 16 < sum(end - start for start, end in there) <= sum(-(-(end - start) // 4096) * 4096 for start, end in chunks)
    assert all(any(start < last and first < end for first, last in chunks) for start, end in there)


def test_what_is_counted_of_events_is_hakmems_own(known):
    with running(known, "churn", HAKMEM_EVENTS="1", HAKMEM_INSIGHT="2") as process:
        reader = outside.Reader(Process(process.pid))
        own = [each[:2] for each in resident.own_records(reader, reader.heap())]
        places = [reader.names.number(reader.names.place(name)) for name in ("event.rows", "event.chunks")]
    for place in places:
        assert place and any(start == place for start, _ in own)


def test_what_lies_on_each_page_is_exact():
    """Against a count block by block."""
    draw = np.random.default_rng(1)
    for size, units in ((16, 1), (48, 1), (64, 1), (512, 1), (640, 1), (1024, 1), (4096, 1), (10240, 2), (28672, 4)):
        slab, page = units << 16, 4096
        blocks = slab // size
        words = draw.integers(0, 1 << 63, (3, -(-blocks // 64)), np.uint64)
        if blocks % 64:
            words[:, -1] &= np.uint64((1 << blocks % 64) - 1)
        found = pages.of_bits(words, blocks, size, slab // page, page)
        assert len(found) == len(words)
        for row, bits in zip(found, words):
            bytes_ = np.zeros(slab, bool)
            taken = [block for block in range(blocks) if int(bits[block // 64]) >> block % 64 & 1]
            for block in taken:
                bytes_[block * size : (block + 1) * size] = True
            assert row.tolist() == bytes_.reshape(-1, page).sum(axis=1).tolist()
            addresses = np.array([(1 << 40) + block * size for block in taken], np.uint64)
            added = np.zeros(slab // page, np.int64)
            pages.of_blocks(addresses, size, 1 << 40, page, added)
            assert added.tolist() == row.tolist()


def test_pages_sum_to_what_is_counted(known, tmp_path):
    with running(known, "rest", tmp_path / "heap", HAKMEM_KEEPER="0") as process:
        reader = outside.Reader(Process(process.pid))
        heap = reader.heap(with_entries=True)
        taken, on = reader.snapshot(heap), pages.contents(reader, heap)
    everything = np.ones(len(on.kind), bool)
    found = resident._sum(reader, on, everything, {}, ~everything)
    counts = {
        name: sum(getattr(each, name) * each.block_size for each in taken.classes)
        for name in ("live", "cached", "remote")
    }
    slabs = sum(each.slabs * each.slab_size for each in taken.classes)
    past = int(on.past.sum()) * 4096
    assert found.live[:-1].sum() == counts["live"] and found.live[-1] == taken.large_bytes
    assert (found.cached, found.waiting) == (counts["cached"], counts["remote"])
    assert found.free == slabs - sum(counts.values()) + past
    free, cached = (heap.units[heap.units["kind"] == reader.value(f"kind.{name}")] for name in ("free", "cached"))
    assert found.spans + found.overshoot == heap.unit_bytes * (len(free) + int(cached["units"].sum()))


def test_pages_by_scan_are_those_of_pagemap_less_the_page_of_zeros(known, tmp_path):
    with running(known, "rest", tmp_path / "heap", HAKMEM_KEEPER="0") as process:
        source = Process(process.pid)
        heap = outside.Reader(source).heap()
        one, other = (pages.Pagemap(source.folder, source.page_size) for _ in range(2))
        other._scans = False
        first, second = (each.pages(heap.base, heap.size).present for each in (one, other))
        mapped = pages.mappings(source.folder)
        kernel = sum(each.resident for each in mapped if heap.base <= each.area.start < heap.base + heap.size)
    assert 4096 * first.sum() == kernel
    assert not (first & ~second).any()
    assert 256 <= (second & ~first).sum() < 300


def mapped(text: str, resident_bytes: int = 0) -> Mapped:
    return Mapped(memory.parse_maps([text])[0], resident_bytes, resident_bytes, 0, 0)


def test_of_a_thread_that_runs_a_stack_is_what_has_a_guard_below():
    others = [
        mapped("7f0000000000-7f0000001000 ---p 0 00:00 0"),
        mapped("7f0000001000-7f0000800000 rw-p 0 00:00 0", 1),
        mapped("7f0000800000-7f0000801000 ---p 0 00:00 0"),
        mapped("7f0000801000-7f0001000000 rw-p 0 00:00 0", 1),
        mapped("7f0100000000-7f0100021000 rw-p 0 00:00 0", 10),  # glibc's arenas: the second one's guard is the first one's rest
        mapped("7f0100021000-7f0104000000 ---p 0 00:00 0"),
        mapped("7f0104000000-7f0107ff0000 rw-p 0 00:00 0", 100),
        mapped("7f0107ff0000-7f0108000000 ---p 0 00:00 0"),
        mapped("7f0108000000-7f010c000000 rw-p 0 00:00 0", 1000),
        mapped("7f0200000000-7f0200001000 ---p 0 00:00 0"),  # of some other size, as may be a guarded block
        mapped("7f0200001000-7f0200002000 rw-p 0 00:00 0", 10000),
    ]

    def stacks(pointers: list[int | None]) -> int:
        return sum(count for key, _, count in elsewhere.rows(others, pointers) if key == "stacks")

    assert [stacks([None] * threads) for threads in range(5)] == [0, 1, 2, 10002, 10002]
    assert stacks([0x7F0100000010]) == 10
    assert stacks([0x7F0000700000, None]) == 2


@pytest.mark.parametrize(
    ("flags", "path", "key"),
    [
        ("r--s", "/srv/index", "files"),
        ("rw-s", "/srv/index (deleted)", "files"),
        ("r--p", "/srv/index", "files"),
        ("rw-s", "/dev/shm/ring", "shared"),
        ("rw-s", "/memfd:ring (deleted)", "shared"),
        ("rw-s", "/SYSV00000000 (deleted)", "shared"),
        ("rw-s", "/dev/zero (deleted)", "shared"),
        ("rw-s", "", "shared"),
        ("rw-s", "[anon_shmem:ring]", "shared"),
    ],
)
def test_a_file_that_is_mapped_to_be_shared_is_a_file(flags, path, key):
    """And goes when memory is wanted, which shared memory does not."""
    each = Mapped(memory.parse_maps([f"7f0000000000-7f0000002000 {flags} 0 fe:00 4711 {path}".rstrip()])[0], 8192, 0, 0, 0)
    assert [(found, count) for found, _, count in elsewhere.rows([each], [])] == [(key, 8192)]


def rows(**resident_of: int) -> Table:
    groups = {
        "asked": PROGRAM,
        "spans": CACHE,
        "bins": CACHE,
        "remote": CACHE,
        "slab_free": FRAGMENTATION,
        "files": OTHER,
    }
    table = Table(1, [Row(key, key, groups[key], count) for key, count in resident_of.items()])
    table.total = sum(resident_of.values())
    return table


def test_verdict_is_the_largest_excess_if_it_is_worth_a_word():
    assert judge(rows(asked=800, spans=120, slab_free=70)).kind == PROGRAM
    assert judge(rows(asked=500, spans=120, slab_free=380)).kind == FRAGMENTATION
    assert judge(rows(asked=10, bins=20, files=5)).text.startswith("cache: 20 B are in threads' bins")
    assert "wait for their owners" in judge(rows(asked=10, remote=20)).text


def test_page_cache_is_the_verdict_only_where_the_limit_of_the_group_is_near():
    table = rows(asked=50, slab_free=950)
    alone = judge(table)
    assert alone.kind == FRAGMENTATION
    table.group_total, table.group_cache = 5000, 4000
    for limit, kind in ((None, FRAGMENTATION), (50_000, FRAGMENTATION), (5100, PAGE_CACHE)):
        table.group_limit = limit
        found = judge(table)
        assert found.kind == kind
        cached = "3.9 KiB of the 4.9 KiB of its control group are page cache, which the kernel drops when memory is needed"
        assert found.text == (cached if kind == PAGE_CACHE else f"{alone.text}; {cached}")
    table.group_cache = 900  # less than what the process has
    assert judge(table) == alone


def test_titles_are_folded_on_a_narrow_terminal():
    table = Table(7, [Row("data", "written data of programs and libraries", OTHER, 10 << 20, 10 << 20)], 10 << 20)
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(outside_commands.columns(table))
    text = console.export_text()
    assert "librar" in text and "…" not in text


def test_where_no_mappings_are_known_the_rest_is_told_once():
    table = resident.of_snapshot(Snapshot(process=7, resident=80 << 20, own=1 << 20))
    assert table.verdict.text == "not the heap: 79.0 MiB, the rest of the resident set"
    assert [row.counted for row in table.rows if row.title == "not the heap: the rest of the resident set"] == [79 << 20]


class Groups:
    """A /proc and control groups as the kernel would tell of them, for process 7."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.mounted = folder / "proc", folder / "groups"
        self.lines: list[str] = []
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "7").mkdir()

    def mount(self, kind: str, name: str, options: str, root: str = "/") -> Path:
        point = self.mounted / name
        self.lines.append(f"31 23 0:28 {root} {point} rw,relatime - {kind} {kind} {options}\n")
        (self.proc / "self" / "mountinfo").write_text("".join(self.lines))
        return point

    def is_in(self, *paths: str) -> None:
        (self.proc / "7" / "cgroup").write_text("".join(f"{path}\n" for path in paths))

    def of(self) -> tuple:
        found = resident.control_group(7, self.proc)
        return found.total, found.cache, found.limit


def group(folder: Path, total: int, stat: str, limit: str = "max", high: str = "max") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.current").write_text(f"{total}\n")
    (folder / "memory.stat").write_text(stat)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.high").write_text(f"{high}\n")


def old_group(folder: Path, total: int, stat: str, limit: int = 9223372036854771712) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.usage_in_bytes").write_text(f"{total}\n")
    (folder / "memory.stat").write_text(stat)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")


def test_of_nested_control_groups_the_innermost_whose_limit_is_near(tmp_path):
    groups = Groups(tmp_path)
    point = groups.mount("cgroup2", "", "rw")
    groups.is_in("0::/pod/app/leaf")
    assert groups.of() == (None, None, None)
    group(point / "pod/app/leaf", 1000, "anon 200\nfile 700\nshmem 100\n")
    assert groups.of() == (1000, 600, None)
    group(point / "pod/app", 2000, "file 1500\n", "10000")  # far from its limit
    assert groups.of() == (1000, 600, None)
    group(point / "pod", 9000, "file 8000\n", "max", "10000")
    assert groups.of() == (9000, 8000, 10000)
    group(point / "pod/app/leaf", 1000, "anon 200\nfile 700\nshmem 100\n", "1100")
    assert groups.of() == (1000, 600, 1100)
    groups.is_in("0::/../elsewhere")  # out of what is seen here
    assert groups.of() == (None, None, None)


def test_control_groups_of_version_1(tmp_path):
    groups = Groups(tmp_path)
    groups.mount("cgroup2", "unified", "rw").mkdir(parents=True)
    groups.mount("cgroup", "cpu", "rw,cpu")
    point = groups.mount("cgroup", "memory", "rw,memory")
    groups.is_in("4:cpu:/", "3:memory:/docker/one", "0::/")
    old_group(point, 90_000, "cache 5\ntotal_cache 80000\n")
    assert groups.of() == (None, None, None)  # the machine is no group
    old_group(point / "docker/one", 1000, "cache 5\ntotal_cache 900\ntotal_shmem 100\n")
    assert groups.of() == (1000, 800, None)
    old_group(point / "docker", 4000, "total_cache 3000\n", 4100)
    assert groups.of() == (4000, 3000, 4100)


def test_a_control_group_that_is_mounted_alone_has_the_paths_of_the_machine(tmp_path):
    """As in a container without a namespace of groups."""
    groups = Groups(tmp_path)
    point = groups.mount("cgroup2", "", "rw", "/docker/one")
    group(point, 500, "file 100\n")
    groups.is_in("0::/docker/one")
    assert groups.of() == (500, 100, None)
    groups.is_in("0::/docker/one/below")
    group(point / "below", 50, "file 10\n")
    assert groups.of() == (50, 10, None)
    groups.is_in("0::/docker/another")
    assert groups.of() == (None, None, None)


# ---- The commands ----


def test_resident_shows_the_table_and_the_verdict(hakmem, held):
    with running(held, "pinned") as process:
        shown = hakmem("resident", str(process.pid))
        result = json.loads(hakmem("resident", str(process.pid), "--json").stdout)
    assert shown.returncode == 0
    assert re.search(
        r"free blocks in slabs, mostly on pages with live ones\s+[56]\d\.\d MiB\s+[89]\d\.\d %", shown.stdout
    )
    assert re.search(r"resident set\s+[67]\d\.\d MiB\s+100\.0 %", shown.stdout)
    assert "\nfragmentation: " in shown.stdout
    assert sum(row["resident"] for row in result["rows"]) == result["resident"]
    assert result["verdict"]["kind"] == "fragmentation"


def test_of_a_core_and_a_file_pages_are_not_known(hakmem, known, tmp_path):
    taken = Heap({64: mixed({2: 1000}, free=24)}).sampled(1)
    file = tmp_path / "heap"
    file.write_text(text_of(taken))
    result = json.loads(hakmem("resident", str(file), "--json").stdout)
    assert {row["resident"] for row in result["rows"]} == {None}
    assert next(row["counted"] for row in result["rows"] if row["key"] == "asked") == 64_000
    assert "not known" in hakmem("resident", str(file)).stdout
    if not shutil.which("gcore"):
        pytest.skip("no gdb")
    with running(known, "rest", tmp_path / "written", HAKMEM_KEEPER="0") as process:
        subprocess.run(["gcore", "-o", tmp_path / "core", str(process.pid)], check=True, capture_output=True)
        alive, _ = resident.of_memory(Process(process.pid))
    dead = json.loads(hakmem("resident", str(tmp_path / f"core.{process.pid}"), "--json").stdout)
    counted = {row["key"]: row["counted"] for row in dead["rows"]}
    assert counted == {row.key: row.counted for row in alive.rows if row.key in counted}
    assert dead["resident"] is None and dead["verdict"]["text"] == ""


# ---- Addresses ----


def test_every_kind_of_address_is_told(known, tmp_path):
    with running(known, "rest", tmp_path / "heap", HAKMEM_KEEPER="0") as process:
        reader = outside.Reader(memory.open_memory(str(process.pid)))
        heap = reader.heap(with_entries=True)
        taken = reader.snapshot(heap)

        def kind(address: int) -> str:
            return inspection.inspect(reader, address)[0].kind

        sample = next(each for each in taken.samples if each.size > 100 and each.size < 30000)
        found, _ = inspection.inspect(reader, sample.address + 5)
        assert (found.kind, found.start, found.size, found.size_class) == (
            "live",
            sample.address,
            sample.size,
            sample.size,
        )
        assert found.sample.asked == sample.asked
        assert re.search(f"byte 5 of the block at {sample.address:#x}, .*{sample.size} bytes", found.sentence())
        entry = next(int(each.entries[0]) for each in heap.bins if each.count)
        assert kind(entry) == kind(entry + 1) == inspection.IN_BIN
        for bits, state in ((heap.free_bits, inspection.FREE), (heap.remote_bits, inspection.REMOTE)):
            group, unit, word = (int(each[0]) for each in np.nonzero(bits))
            block = (group * 8 + word) * 64 + int(bits[group, unit, word]).bit_length() - 1
            step = reader.classes[heap.units["size_class"][unit]].step
            assert kind(heap.base + unit * heap.unit_bytes + block * step) == state
        large = int(np.flatnonzero(heap.units["kind"] == reader.value("kind.large"))[0])
        found, _ = inspection.inspect(reader, heap.base + large * heap.unit_bytes + 100)
        assert (found.kind, found.size, found.size_class) == ("live", int(heap.units["bytes"][large]), None)
        free = int(np.flatnonzero(heap.units["kind"] == reader.value("kind.free"))[0])
        assert kind(heap.base + free * heap.unit_bytes) == inspection.UNUSED
        slab = next(unit for unit in heap.slabs.tolist() if reader.classes[heap.units["size_class"][unit]].size == 48)
        assert kind(heap.base + slab * heap.unit_bytes + 65535) == inspection.TAIL
        assert kind(reader.names.zone("units")[0]) == inspection.METADATA
        of_heap, of_sites = heap.heaps[0], reader.names.number(reader.names.place("site.chunks"))
        for address, what in ((of_heap, "of a heap"), (of_heap + 64, "of a heap"), (of_sites + 16, "of sites")):
            found, _ = inspection.inspect(reader, address)
            assert found.sentence() == f"{address:#x}: hakmem's records, {what}"
        assert kind(heap.base - (1 << 30)) == kind(16) == inspection.FOREIGN
        assert str(known) in inspection.inspect(reader, reader.memory.files()[str(known)])[0].detail


def test_inspect_names_the_site(hakmem, known, tmp_path):
    with running(known, "rest", tmp_path / "heap", HAKMEM_INSIGHT="2") as process:  # sites from the first block on
        taken = outside.read(Process(process.pid))
        sample = taken.samples[0]
        result = hakmem("inspect", str(process.pid), hex(sample.address))
        as_json = json.loads(hakmem("inspect", str(process.pid), str(sample.address), "--json").stdout)
    assert result.returncode == 0
    assert re.search(
        r": the block at 0x\w+, .*: live\n  slab at .*\n  sampled: \d+ bytes requested, .* ago\n(    .+\n)*    main",
        result.stdout,
    )
    assert as_json["sample"]["asked"] == sample.asked
    assert "main" in [frame["function"] for frame in as_json["sample"]["frames"]]
    for word in ("here", "-5", "-0x5", hex(1 << 64)):
        assert hakmem("inspect", "--", str(process.pid), word).stderr == f"hakmem: {word}: not an address\n"


def test_an_address_is_read_as_the_kernel_prints_it(hakmem, tmp_path):
    """Which is hexadecimal without 0x, and may have no letter."""
    source = tmp_path / "mapped.c"
    source.write_text(_MAPPED)
    program = compiled(tmp_path, source)
    with running(program, "0x555555554000", "555555554000", "0x12345000") as process:

        def told(word: str) -> tuple[int, str]:
            done = hakmem("inspect", str(process.pid), word, "--json")
            return json.loads(done.stdout)["address"], done.stderr

        taken = "hakmem: the address may mean {:#x} or {:#x}; taken as {:#x}: with 0x it is unambiguous\n"
        assert told("0x555555554000") == (0x555555554000, "")
        assert told("555555554000") == (555555554000, "")  # both are mapped
        assert told(str(0x555555554000)) == (0x555555554000, "")
        for word in ("12345000", "12345678"):
            number = int(word, 16)
            assert told(word) == (number, taken.format(int(word), number, number))
        assert told("012345000") == (0x12345000, "")
        assert told("99999999999999") == (99999999999999, taken.format(99999999999999, 0x99999999999999, 99999999999999))


_MAPPED = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **words) {
  for (int i = 1; i < count; i++) {
    char *page = (char *)(strtoul(words[i], NULL, 0) / 4096 * 4096);
    char *found = mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (found != page && errno != EEXIST) return 1; /* the program itself may lie there */
  }
  free(malloc(100));
  return write(1, "ready\\n", 6) != 6 || pause();
}
"""

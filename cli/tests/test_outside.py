"""Heaps read from outside: of a process that runs, and of a core, they are what the process itself says."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import HAKMEM, plain_environment
from processes import LIBRARY, compiled, running, with_own

from hakmem import descriptor, outside, snapshots
from hakmem.errors import Failure
from hakmem.memory import Area, Core, Memory, Process, is_core, open_memory, whole
from hakmem.snapshots import Snapshot

_AGE = 0.3  # seconds that clocks may differ by
_READS = int(os.environ.get("HAKMEM_TEST_READS", "1000"))
_SAY_EVERY = 10_000  # readings


def said(taken: Snapshot) -> dict:
    """What does not change with the time of the look."""
    samples = [
        (each.address, each.size, each.asked, each.chance, each.site, each.tag, each.quiet) for each in taken.samples
    ]
    return {
        "classes": taken.classes,
        "large": (taken.large_blocks, taken.large_bytes),
        "samples": samples,
        "sites": taken.sites,
        "rest": (taken.process, taken.rate, taken.checked, taken.wrong),
    }


def same(seen: Snapshot, written: Snapshot) -> None:
    assert said(seen) == said(written)
    assert seen.moving == 0
    # The snapshot has the build ids of the kernel's own pages too where the loader knows them.
    files = [[each for each in taken.mappings if each.path.startswith("/")] for taken in (seen, written)]
    assert files[0] == files[1]


def cored(process: int, folder: Path) -> Core:
    if not shutil.which("gcore"):
        pytest.skip("no gdb")
    subprocess.run(["gcore", "-o", folder / "core", str(process)], check=True, capture_output=True)
    return Core(str(folder / f"core.{process}"))


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("known"))


@pytest.mark.parametrize("remote", ["0", "1"], ids=["remote frees wait", "sampling at its usual rate"])
def test_process_and_core_are_what_the_process_says(program, tmp_path, remote):
    """The keeper would collect remote frees meanwhile."""
    file = tmp_path / "heap"
    options = {"HAKMEM_KEEPER": "0"} | ({"HAKMEM_SAMPLE_KB": "512"} if remote == "1" else {})
    with running(program, "rest", file, **options) as process:
        written, seen = snapshots.read(str(file)), outside.read(Process(process.pid))
        core = outside.read(cored(process.pid, tmp_path))
    same(seen, written)
    same(core, written)
    assert sum(each.remote for each in written.classes) > 0
    assert sum(each.cached for each in written.classes) > 0
    assert len(written.samples) > 30
    for one, other in zip(seen.samples, written.samples):
        assert -_AGE <= one.age - other.age < 60


def test_a_core_of_the_kernel_is_what_the_process_said(program, tmp_path):
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    if "/" in pattern or pattern.startswith("|") or most != resource.RLIM_INFINITY:
        pytest.skip("cores go elsewhere")
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", folder=tmp_path) as process:
        resource.prlimit(process.pid, resource.RLIMIT_CORE, (most, most))
        process.send_signal(signal.SIGABRT)
        process.wait()
    (path,) = tmp_path.glob("core*")
    same(outside.read(Core(str(path))), snapshots.read(str(file)))


def test_a_process_that_ends_meanwhile_is_one_line(program, tmp_path):
    with running(program, "rest", tmp_path / "heap") as process:
        source = Process(process.pid)
        reader = outside.Reader(source)
        process.kill()
        process.wait()
        with pytest.raises(Failure, match="it ended, or became another program, while it was read"), whole(source):
            reader.snapshot()


def test_a_process_that_becomes_another_program_meanwhile_is_one_line(tmp_path):
    """Not garbage of that one's, which has the number."""
    source = tmp_path / "becomes.c"
    source.write_text(_BECOMES)
    with running(compiled(tmp_path, source)) as process:
        memory = Process(process.pid)
        reader = outside.Reader(memory)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(Failure, match="it ended, or became another program, while it was read"), whole(memory):
            reader.snapshot()


_BECOMES = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  for (int i = 0; i < 1000; i++) memset(malloc(10000), 1, 10000);
  char letter;
  if (write(1, "ready\\n", 6) != 6 || read(0, &letter, 1) != 1) return 1;
  if (count < 2) execl(words[0], words[0], "again", (char *)NULL);
  return 1;
}
"""


# ---- Where a sandbox refuses to read several places by one system call ----

# The kernel's BPF: load the number of the call, where it is the one return ERRNO | EPERM, else ALLOW.
_SANDBOX = """
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (0x06, 0, 0, 0x00050000 | 1), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
head = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)))
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, head, 0, 0):
    sys.exit(77)
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_where_the_call_for_many_places_is_refused_each_is_read_alone(program, tmp_path):
    number = {"x86_64": "310", "aarch64": "270"}.get(os.uname().machine)
    if number is None:
        pytest.skip("the number of process_vm_readv is not known here")
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0") as process:
        plain = [HAKMEM, "profile", "--save", "-", str(process.pid)]
        done = subprocess.run([sys.executable, "-c", _SANDBOX, number, *plain], env=plain_environment(), capture_output=True, timeout=300)
        if done.returncode == 77:
            pytest.skip("no seccomp filter may be set")
        assert (done.returncode, done.stderr) == (0, b"")
        same(snapshots.parse(done.stdout.decode(), "of the sandbox"), snapshots.read(str(file)))


_FIRST_ENDS = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *hold(void *first) {
  char *block = malloc(12 << 20);
  (void)pthread_join(*(pthread_t *)first, NULL);
  memset(block, 1, 12 << 20);
  (void)!write(1, "ready\\n", 6);
  return sleep(100), block;
}
int main(void) {
  static pthread_t first, other;
  first = pthread_self();
  if (pthread_create(&other, NULL, hold, &first) != 0) return 1;
  pthread_exit(NULL);
}
"""


def test_a_process_whose_first_thread_has_ended_is_read_all_the_same(hakmem, tmp_path):
    source = tmp_path / "first_ends.c"
    source.write_text(_FIRST_ENDS)
    with running(compiled(tmp_path, source, "-g")) as process:
        told = hakmem("profile", str(process.pid), "--json")
        assert told.returncode == 0, told.stderr
        held = [line["frames"] for line in json.loads(told.stdout)["lines"] if line["live"] >= 12 << 20]
        assert "hold" in str(held)
        assert str(process.pid) in hakmem("top", "--json").stdout
        table = hakmem("resident", str(process.pid), "--json")
        assert table.returncode == 0, table.stderr
        assert max(row["resident"] for row in json.loads(table.stdout)["rows"]) >= 12 << 20


def test_bits_and_entries_are_as_many_as_are_counted(program, tmp_path):
    with running(program, "rest", tmp_path / "heap", HAKMEM_KEEPER="0") as process:
        reader = outside.Reader(Process(process.pid))
        heap = reader.heap(with_entries=True)
        assert len(heap.slabs) == len(heap.waiting)
        for slab, waiting in zip(heap.slabs, heap.waiting):
            record = heap.units[slab]
            words = -(-reader.classes[record["size_class"]].blocks // 64)
            free, waits = (
                heap.words(bits, heap.slabs[heap.slabs == slab], words) for bits in (heap.free_bits, heap.remote_bits)
            )
            assert np.bitwise_count(free).sum() == record["free"]
            assert np.bitwise_count(waits).sum() == waiting
            assert not (free & waits).any()
        for each in heap.bins:
            assert len(each.entries) == each.count == len(set(each.entries.tolist()))
            units = (each.entries - heap.base) // heap.unit_bytes
            heads = [heap.units[unit]["head"] if heap.units[unit]["kind"] == 2 else unit for unit in units.tolist()]
            assert set(heap.units["size_class"][heads]) <= {each.size_class}


class Torn(Process):
    """The first record of each slab and sample is another one's, for so many readings."""

    turns = {"slabs": 0, "samples": 0}

    def gather(self, addresses, sizes):
        found = super().gather(addresses, sizes)
        if len(sizes) == 1:  # the bins
            return found
        kind = "samples" if sizes == [32, 64, 32] else "slabs"
        if self.turns[kind]:
            self.turns[kind] -= 1
            found[:, : sizes[0]] ^= 1
        return found


@pytest.mark.parametrize("kind", ["slabs", "samples"])
def test_what_changes_while_it_is_read_is_read_again_and_then_left_out(program, tmp_path, kind, monkeypatch):
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0") as process:
        written, memory = snapshots.read(str(file)), Torn(process.pid)
        monkeypatch.setitem(Torn.turns, kind, 1)
        same(outside.read(memory), written)
        assert Torn.turns[kind] == 0
        monkeypatch.setitem(Torn.turns, kind, 1000)
        seen = outside.read(memory)
    if kind == "samples":
        assert seen.samples == [] and seen.moving == 0
    else:
        assert 0 < seen.moving <= seen.slabs and seen.live_bytes == written.live_bytes


def test_what_was_taken_from_a_bin_is_in_it_no_more(program, tmp_path):
    file = tmp_path / "heap"
    with running(program, "drained", file, HAKMEM_KEEPER="0") as process:
        written, reader = snapshots.read(str(file)), outside.Reader(Process(process.pid))
        heap = reader.heap(with_entries=True)
        same(outside.read(reader.memory), written)
    cached = [each for each in heap.bins if each.count]
    assert len(cached) > 10 and sum(each.count for each in cached) < 100  # of 960
    assert all(heap.base <= address < heap.base + heap.size for each in cached for address in each.entries.tolist())


def test_a_churning_process_has_no_impossible_figure(program):
    largest = moving = slabs = 0
    stillest = 1.0  # the least share of slabs moving in a reading: in one that did not wait for a processor between two looks
    with running(program, "churn") as process:
        reader = outside.Reader(Process(process.pid))
        for turn in range(_READS):
            heap = reader.heap()
            for each in reader.size_classes(heap):
                room = each.slabs * (each.slab_size // max(each.block_size, 16))
                counts = (each.live, each.cached, each.free, each.remote)
                assert min(counts) >= 0 and each.free + each.remote <= room and each.live <= room
            large = heap.units[heap.units["kind"] == reader.value("kind.large")]
            assert (large["bytes"] > 0).all() and int(large["bytes"].sum()) <= heap.size
            moving, slabs = moving + heap.moving, slabs + len(heap.slabs)
            stillest = min(stillest, heap.moving / len(heap.slabs))
            if turn % 50 == 0:
                taken = reader.snapshot(heap)
                assert taken.live_bytes <= heap.size
                sizes = {each.size for each in reader.classes}
                for each in taken.samples:
                    assert each.size in sizes or each.size <= heap.size
                    assert each.asked <= max(each.size, 4096) and each.age < 3600
                    assert heap.base <= each.address < heap.base + heap.size
                    assert each.site == 0 or each.site in taken.sites
                largest = max(largest, len(taken.samples))
            if (turn + 1) % _SAY_EVERY == 0 or turn + 1 == _READS:
                print(f"{turn + 1:,} readings, {100 * moving / slabs:.4f} % of slabs moving", flush=True)
    assert stillest < 0.01
    assert largest > 0


# ---- Where the descriptor is found ----


@pytest.mark.parametrize("strip", [False, True])
def test_found_in_a_stripped_library_and_by_its_magic_in_a_core_without_headers(program, tmp_path, strip):
    library = tmp_path / "libhakmem.so"
    shutil.copy(LIBRARY, library)
    if strip:
        if not shutil.which("strip"):
            pytest.skip("no strip")
        subprocess.run(["strip", "--strip-all", library], check=True)
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", LD_PRELOAD=str(library)) as process:
        found = descriptor.find(Process(process.pid))
        (Path("/proc") / str(process.pid) / "coredump_filter").write_text("0x23")  # less files' headers
        core = cored(process.pid, tmp_path)
    headers = [core.segments_at(start) for path, start in core.files().items() if path.startswith("/")]
    assert not any(headers)
    assert descriptor.find(core).address == found.address
    assert said(outside.read(core)) == said(snapshots.read(str(file)))


def test_a_core_that_lacks_the_librarys_memory_is_told_as_such(hakmem, program, tmp_path):
    with running(program, "rest", tmp_path / "heap") as process:
        folder = Path("/proc") / str(process.pid)
        for kinds in ("0x0", "0x10"):  # nothing, headers alone
            (folder / "coredump_filter").write_text(kinds)
            core = cored(process.pid, tmp_path)
            assert any(area.path == str(LIBRARY.resolve()) for area in core.areas)
            for command, *address in (["profile"], ["resident"], ["inspect", "0x10"]):
                told = hakmem(command, core.name, *address)
                assert told.returncode == 1
                assert told.stderr.startswith(f"hakmem: {core.name}: the core lacks the memory of {LIBRARY.resolve()}: "), told.stderr
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            with pytest.raises(Failure, match="no hakmem in it"):
                descriptor.find(cored(other.pid, tmp_path))
        finally:
            other.kill()


def test_found_where_its_file_is_mapped_to_be_read_too(tmp_path):
    """As symbolizers do, which take an address below that of the library."""
    code = "import mmap, sys; files = [open(name, 'rb') for name in sys.argv[1:]]"
    code += "; maps = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]"
    code += "; print('ready', flush=True); input()"
    with running(sys.executable, "-c", code, LIBRARY) as process:
        alive = Process(process.pid)
        areas = [area for area in alive.areas if area.path == str(LIBRARY.resolve())]
        starts = [area.start for area in areas if area.offset == 0]
        code = min(area.start for area in areas if "x" in area.flags)
        assert len(starts) == 2
        for memory in (alive, cored(process.pid, tmp_path)):
            assert memory.files()[str(LIBRARY.resolve())] == max(start for start in starts if start < code)
            assert descriptor.find(memory).memory is memory


def test_the_programs_own_is_looked_at_before_a_preloaded_one():
    """Which has been asked for little, and has a region all the same."""

    class Both(Memory):
        def program(self):
            return 0x9010

        def notes_at(self, start):
            yield "hakmem", 0x68616B, start + 0x100, struct.pack("<q", 0x20)

    both = Both()
    both.areas = [Area(0x1000, 0x2000, "r-xp", 0, "/lib/libhakmem.so"), Area(0x9000, 0xA000, "r-xp", 0, "/bin/server")]
    assert [*descriptor._candidates(both)] == [0x9120, 0x1120]


def test_of_two_the_one_that_is_used_most_is_told_and_the_other_one_named(hakmem, tmp_path):
    program = with_own(tmp_path)
    for own, other, is_own, named in (("10000", "0", True, None), ("40000", "10000", True, LIBRARY), ("10000", "40000", False, program)):
        with running(program, own, other, "wait") as process:
            profile = hakmem("profile", str(process.pid))
            remarks = json.loads(hakmem("profile", "--json", str(process.pid)).stdout)["remarks"]
            table = hakmem("resident", str(process.pid))
            core = hakmem("profile", cored(process.pid, tmp_path).name)
        for told in (profile, core):
            assert ("hold_own" in told.stdout, "hold_other" in told.stdout) == (is_own, not is_own), (own, other)
        text = f"another hakmem is in use besides the one shown here, in {named and named.resolve()}: what it holds is not shown"
        assert [text in told for told in (profile.stderr, remarks, table.stderr, core.stderr)] == [named is not None] * 4
        assert ("another hakmem" in profile.stderr) == (named is not None)
        assert table.returncode == 0


def test_of_two_the_idle_one_is_not_told_however_little_the_other_one_has(tmp_path):
    program = with_own(tmp_path)
    for own, other, of in (("0", "1000", LIBRARY), ("1000", "0", program), ("0", "40000", LIBRARY)):
        with running(program, own, other, "wait") as process:
            memory = Process(process.pid)
            found = descriptor.find(memory)
            assert memory.area_at(found.address).path == str(of.resolve())
            assert descriptor.untold(memory, found) == ""


def test_of_two_the_one_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    program, readable, why = with_own(tmp_path), descriptor.Descriptor, "it is of another version"

    def read(memory, address):
        if memory.area_at(address).path == str(LIBRARY.resolve()):
            raise Failure(why)
        return readable(memory, address)

    monkeypatch.setattr(descriptor, "Descriptor", read)
    with running(program, "1000", "1000", "wait") as process:
        memory = Process(process.pid)
        assert descriptor.untold(memory, descriptor.find(memory)) == f"another hakmem can't be read: {why}"
    with running(program, "0", "1000", "wait") as process, pytest.raises(Failure, match=why):
        descriptor.find(Process(process.pid))


def test_what_a_reader_misses_is_named(program, tmp_path):
    with running(program, "rest", tmp_path / "heap") as process:
        found = descriptor.find(Process(process.pid))
        del found.fields["unit.kind"]
        with pytest.raises(Failure, match=r"its hakmem, \d+\.\d+\.\d+, does not describe unit\.kind"):
            found.field("unit.kind")


# ---- The command ----


def test_profile_takes_a_process_and_a_core(hakmem, program, tmp_path):
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_TRACK="1") as process:
        outputs = [hakmem("profile", str(process.pid)), hakmem("profile", str(file))]
        core = cored(process.pid, tmp_path)
        outputs.append(hakmem("profile", core.name))
    tables = [re.sub(r"[\d.]+ (s|min)\b|process .*UTC|:\d+\b|\s+|─+", " ", each.stdout) for each in outputs]
    assert [each.returncode for each in outputs] == [0, 0, 0]
    assert "main" in tables[0] and "live" in tables[0] and "kept by blocks allocated by" in tables[0]
    assert re.sub(r"\s+", "", tables[0]) == re.sub(r"\s+", "", tables[1]) == re.sub(r"\s+", "", tables[2])


def test_what_cannot_be_read_is_one_line(hakmem, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    result = hakmem("profile", str(gone.pid))
    assert result.returncode == 1 and result.stderr == f"hakmem: process {gone.pid}: no such process\n"
    with subprocess.Popen(["sleep", "60"]) as other:
        time.sleep(0.1)
        result = hakmem("profile", str(other.pid))
        other.kill()
    assert result.stderr == f"hakmem: process {other.pid}: no hakmem in it, or one too old to be read from outside\n"
    broken = tmp_path / "core"
    broken.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 4, 62) + bytes(20))
    assert is_core(broken.read_bytes())
    result = hakmem("profile", str(broken))
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and "can't be read" in result.stderr


def test_a_number_that_is_a_file_is_the_file(tmp_path, monkeypatch):
    (tmp_path / "123").write_text("hakmem-snapshot 1\nend\n")
    monkeypatch.chdir(tmp_path)
    assert open_memory("123") == b"hakmem-snapshot 1\nend\n"


def test_a_file_that_is_none_of_hakmems_does_not_hide_a_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    number = str(os.getpid())
    Path(number).write_text("notes")
    assert open_memory(number).process == os.getpid()
    Path(number).unlink()
    Path(number).mkdir()  # as in /proc
    assert open_memory(number).process == os.getpid()
    gone = subprocess.Popen(["true"])
    gone.wait()
    Path(str(gone.pid)).write_text("notes")
    assert open_memory(str(gone.pid)) == b"notes"

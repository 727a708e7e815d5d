"""import hakmem: what a Python program that runs under hakmem can ask and tell of itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from processes import LIBRARY

import hakmem
from hakmem import pprof_files, snapshots

MIB = 1 << 20


def run(code: str, *arguments: object, preload: str = str(LIBRARY), **variables: str) -> subprocess.CompletedProcess:
    """A Python program, with what all of these need imported."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "PYTHON", "LD_PRELOAD"))
    }
    environment |= {"LD_PRELOAD": preload, "HAKMEM_INSIGHT": "2", "PYTHONMALLOC": "malloc"} | variables
    return subprocess.run(
        [sys.executable, "-c", f"import json, os, sys\nimport hakmem\n{dedent(code)}", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def said(code: str, *arguments: object, **variables: str) -> object:
    """What the program prints, as JSON."""
    done = run(code, *arguments, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


# ---- Without hakmem ----


def test_import_brings_in_nothing_that_is_slow():
    code = "print(json.dumps(sorted(sys.modules)))"
    loaded = {name.partition(".")[0] for name in said(code)}
    assert "hakmem" in loaded
    assert not loaded & {"click", "rich", "numpy", "elftools", "google", "ctypes", "email", "typing"}


def test_no_module_of_the_package_takes_the_place_of_a_function():
    code = """
    import importlib, pathlib, sys
    for file in pathlib.Path(hakmem.__file__).parent.glob("[!_]*.py"):
        if file.stem != "otlp" or sys.version_info >= (3, 10):  # what it needs is not to be had before
            importlib.import_module(f"hakmem.{file.stem}")
    print(json.dumps([name for name in hakmem.__all__ if type(getattr(hakmem, name)).__name__ == "module"]))
    """
    assert said(code, preload="") == []
    assert hakmem.__version__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        hakmem.nothing  # noqa: B018


def test_the_page_tells_of_every_name():
    page = (Path(__file__).parents[2] / "docs" / "languages" / "python.md").read_text()
    for name in set(hakmem.__all__) - {"NotActive", "Stats", "__version__"}:
        assert re.search(rf"^\|.*`{name}\(.*\).*` \|", page, re.M), name
    assert "`hakmem.NotActive`" in page
    assert all(getattr(hakmem, name).__doc__ for name in hakmem.__all__ if name != "__version__")


CALLS = [
    "hakmem.stats()",
    "hakmem.set_tag(1)",
    "hakmem.tag(1).__enter__()",
    "hakmem.snapshot(sys.argv[1])",
    "hakmem.pprof(sys.argv[1])",
    "hakmem.arm(1)",
    "hakmem.trim()",
    "hakmem.profile().__enter__()",
    "hakmem.profile(sys.argv[1]).__enter__()",
]


@pytest.mark.parametrize("call", CALLS)
def test_without_hakmem_each_call_says_what_to_do(call, tmp_path):
    file = tmp_path / "heap"
    done = run(f"assert not hakmem.active()\n{call}", file, preload="")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "hakmem.NotActive: this process does not run under hakmem: start it with `hakmem run -- python ...`"
    )
    assert list(tmp_path.iterdir()) == []


def test_hakmem_run_is_what_it_takes(hakmem):
    done = hakmem("run", "--", sys.executable, "-c", "import hakmem; print(hakmem.active(), hakmem.stats().live > 0)")
    assert (done.returncode, done.stdout) == (0, "True True\n")


# ---- Statistics ----


def test_statistics_are_all_that_the_library_has():
    before, after, shown, length, wrong = said(
        """
        before = hakmem.stats()
        kept = bytearray(8 << 20)
        after = hakmem.stats()
        try:
            after.no_such
        except AttributeError as error:
            wrong = str(error)
        assert after.live == after["live"] and set(after) == set(dict(after))
        print(json.dumps([dict(before), dict(after), repr(after), len(after), wrong]))
        """
    )
    assert after["live"] - before["live"] == pytest.approx(8 * MIB, rel=0.01)
    assert after["large_allocs"] == before["large_allocs"] + 1
    assert len(after["class_stats"]) == after["classes"] and len(after["heap_stats"]) == after["heaps"]
    assert f"live={after['live']}" in shown and length == len(after) and "no_such" in wrong
    header = Path(__file__).parents[2] / "include" / "hakmem" / "hakmem.h"
    fields = re.search(r"typedef struct hak_stats \{(.*?)\} hak_stats_t;", header.read_text(), re.S)[1]
    names = re.findall(r"(\w+)(?=[;,])", re.sub(r"/\*.*?\*/", "", fields, flags=re.S))
    assert len(names) > 40 and set(names) - {"struct_size"} <= set(after)


def test_bytes_given_back_are_counted():
    held, given, freed, again = said(
        """
        kept = bytearray(64 << 20)
        del kept
        held = hakmem.stats().resident
        given = hakmem.trim()
        print(json.dumps([held, given, hakmem.stats().resident, hakmem.trim()]))
        """,
        HAKMEM_DECAY_MS="-1",
    )
    assert given >= 64 * MIB and held - freed == pytest.approx(given, rel=0.1)
    assert again < MIB


# ---- Who allocates ----


def test_labels_are_in_profiles_and_of_a_thread(tmp_path):
    file = tmp_path / "heap"
    numbers = said(
        """
        import threading
        numbers = [hakmem.set_tag(3)]
        outer = hakmem.tag(7)
        with outer:
            kept = bytearray(8 << 20)
            with hakmem.tag(0xFFFFFFFF), outer:
                numbers.append(hakmem.set_tag(7))
            numbers.append(hakmem.set_tag(7))
            thread = threading.Thread(target=lambda: numbers.append(hakmem.set_tag(9)))
            thread.start()
            thread.join()
        try:
            with hakmem.tag(5):
                raise KeyError
        except KeyError:
            pass
        numbers.append(hakmem.set_tag(0))
        hakmem.snapshot(sys.argv[1])
        print(json.dumps(numbers))
        """,
        file,
    )
    assert numbers == [0, 7, 7, 0, 3]
    assert [each.tag for each in snapshots.read(str(file)).samples if each.size >= 8 * MIB] == [7]


@pytest.mark.parametrize("call", ["set_tag", "tag", "arm"])
@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_numbers_that_do_not_fit_are_refused(call, number):
    done = run(f"hakmem.{call}({number})")
    assert done.stderr.splitlines()[-1].startswith("ValueError: ") and str(number) in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("call", ["set_tag", "tag", "arm"])
@pytest.mark.parametrize("number", [1.5, "x", None])
def test_what_is_no_number_is_refused(call, number):
    assert run(f"hakmem.{call}({number!r})").stderr.splitlines()[-1].startswith("TypeError: ")


def test_a_python_without_memory_files_has_others():
    code = """
    import ctypes, tempfile
    del os.memfd_create
    if sys.argv[1] == "neither":
        ctypes.CDLL = lambda name: object()
    from hakmem.unnamed import unnamed_file
    with unnamed_file("a name") as file:
        file.write(b"text")
        print(json.dumps([os.pread(file.fileno(), 10, 0) == b"text", "memfd:a name" in os.readlink(f"/proc/self/fd/{file.fileno()}")]))
    """
    assert said(code, "libc's") == [True, True]
    assert said(code, "neither") == [True, False]
    assert said("del os.memfd_create\nprint(json.dumps(hakmem.stats().pid == os.getpid()))") is True


# ---- Files ----

TO_EACH_TARGET = """
import io, pathlib
kept = bytearray(8 << 20)
write = getattr(hakmem, sys.argv[1])
folder = pathlib.Path(sys.argv[2])
write(str(folder / "name"))
(folder / "path").write_bytes(b"older" * 1_000_000)
write(folder / "path")
with open(folder / "number", "wb") as file:
    write(file.fileno())
with open(folder / "file", "wb") as file:
    write(file)
memory = io.BytesIO()
write(memory)
(folder / "memory").write_bytes(memory.getvalue())
print(os.getpid())
"""
TARGETS = {"name", "path", "number", "file", "memory"}


def test_snapshots_go_to_paths_descriptors_and_files(tmp_path):
    process = said(TO_EACH_TARGET, "snapshot", tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == TARGETS
    for file in tmp_path.iterdir():
        taken = snapshots.read(str(file))
        assert taken.process == process and taken.large_bytes >= 8 * MIB


def test_profiles_for_pprof_go_there_too(tmp_path):
    said(TO_EACH_TARGET, "pprof", tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == TARGETS
    for file in tmp_path.iterdir():
        found = pprof_files._message("Profile").FromString(file.read_bytes())
        at = [found.string_table[each.type] for each in found.sample_type].index("inuse_space")
        assert sum(each.value[at] for each in found.sample) >= 8 * MIB


@pytest.mark.parametrize("call", ["snapshot", "pprof"])
@pytest.mark.parametrize(("target", "error"), [("/dev/full", "OSError: [Errno 28]"), ("/", "IsADirectoryError: ")])
def test_what_can_not_be_written_is_an_error(call, target, error):
    done = run(f"hakmem.{call}({target!r})")
    assert done.stderr.splitlines()[-1].startswith(error)


def test_a_child_tells_of_itself(tmp_path):
    file = tmp_path / "heap"
    parent, child = said(
        """
        hakmem.stats()
        child = os.fork()
        if not child:
            hakmem.snapshot(sys.argv[1])
            os._exit(hakmem.stats().pid != os.getpid())
        assert os.waitpid(child, 0)[1] == 0
        print(json.dumps([hakmem.stats().pid, child]))
        """,
        file,
    )
    assert snapshots.read(str(file)).process == child != parent


# ---- What a block of code did ----


def test_allocations_are_counted_while_armed(tmp_path):
    file = tmp_path / "heap"
    said(
        """
        def churn():
            for _ in range(4000):
                bytearray(20_000)
        churn()
        hakmem.arm(60)
        churn()
        hakmem.arm(0)
        churn()
        hakmem.snapshot(sys.argv[1])
        print(0)
        """,
        file,
    )
    sums = snapshots.read(str(file)).allocated.values()
    most = max(sums, key=lambda each: each.bytes)
    assert abs(most.bytes / 80e6 - 1) < 0.05 + 4 / most.events**0.5


def test_what_a_block_keeps_is_told():
    bytes_, function, text, nothing = said(
        """
        with hakmem.profile() as taken:
            kept = [bytearray(30_000) for _ in range(400)]
        with hakmem.profile() as rest:
            sum(range(1000))
        change = taken.changes[0]
        names = [name for name, place in change.frames]
        print(json.dumps([change.change, names, taken.text(), [len(rest.changes), rest.text()]]))
        """
    )
    assert bytes_ == pytest.approx(400 * 32768, rel=0.5)
    assert re.search(r"PyByteArray_Resize|python3|libpython", " ".join(function))
    assert re.search(r"^live .* before, .* after: \+1\d\.\d MiB$", text, re.M) and "chance" in text
    assert nothing[0] == 0 and "no site changed beyond chance" in nothing[1]


def test_the_snapshot_before_is_not_in_the_one_after():
    changes, difference = said(
        """
        with hakmem.profile() as taken:
            pass
        found = taken.difference
        print(json.dumps([[each.change for each in found.changes], found.after - found.before]))
        """
    )
    assert not any(changes) and abs(difference) < 16384


def test_its_snapshots_are_kept_where_a_path_is_given(hakmem, tmp_path):
    said(
        """
        with hakmem.profile(sys.argv[1]) as taken:
            kept = bytearray(8 << 20)
        for name, data in zip(("before", "after"), taken.snapshots):
            with open(f"{sys.argv[1]}.{name}", "rb") as file:
                assert file.read() == data
        print(0)
        """,
        tmp_path / "work",
    )
    done = hakmem("diff", str(tmp_path / "work.before"), str(tmp_path / "work.after"))
    assert done.returncode == 1 and "+8.0 MiB" in done.stdout


def test_a_path_of_bytes_is_a_path(tmp_path):
    said("with hakmem.profile(os.fsencode(sys.argv[1])):\n    pass\nprint(0)", tmp_path / "work")
    assert {each.name for each in tmp_path.iterdir()} == {"work.before", "work.after"}


def test_an_object_that_serves_again_tells_of_the_last_block():
    code = """
    taken = hakmem.profile()
    with taken:
        kept = bytearray(8 << 20)
    first = len(taken.changes)
    with taken:
        pass
    print(json.dumps([first, len(taken.changes)]))
    """
    first, second = said(code)
    assert first > 0 and second == 0


def test_what_is_told_leaves_no_file_unclosed():
    done = run("with hakmem.profile() as taken:\n    kept = bytearray(8 << 20)\nprint(taken.text())\ndel taken", PYTHONWARNINGS="error")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_childs_own_blocks_end_its_counting():
    code = """
    def counted():
        import re
        return sum(int(size) for size in re.findall(rb"^allocated [0-9]+ [0-9]+ [0-9]+ ([0-9]+)", taken_now(), re.M))
    def taken_now():
        import io
        into = io.BytesIO()
        hakmem.snapshot(into)
        return into.getvalue()
    with hakmem.profile(events=True):
        child = os.fork()
        if child == 0:
            with hakmem.profile(events=True):
                for _ in range(100):
                    bytearray(200_000)
            before = counted()
            for _ in range(100):
                bytearray(200_000)
            os._exit(counted() - before > 1_000_000)
        print(json.dumps(os.waitpid(child, 0)[1]))
    """
    assert said(code) == 0


def test_with_events_what_is_freed_soon_is_told_too():
    rows, text, others = said(
        """
        hakmem.arm(60)
        for _ in range(2000):
            bytearray(20_000)
        with hakmem.profile(events=True) as taken:
            for _ in range(4000):
                bytearray(20_000)
        for _ in range(4000):
            bytearray(20_000)
        with hakmem.profile() as other:
            pass
        counted = [
            [line for line in each.snapshots[1].splitlines() if line.startswith(b"event ")] for each in (taken, other)
        ]
        assert counted[0] == counted[1] != [], "the end of the block is the end of counting"
        rows = [[row.sums.bytes, row.sums.objects, row.sums.events] for row in taken.allocated]
        print(json.dumps([rows, taken.text(), [[row.sums.bytes for row in other.allocated], other.text()]]))
        """
    )
    bytes_, objects, events = rows[0]
    share = 0.05 + 4 / events**0.5
    assert abs(bytes_ / 80e6 - 1) < share and abs(objects / 4000 - 1) < share
    assert "freed since or not" in text
    assert others[0] == [] and "freed since or not" not in others[1]


def test_blocks_within_each_other_and_side_by_side_count_all_of_theirs():
    code = """
    import threading
    def churn(count):
        for _ in range(count):
            bytearray(100_000)
    def beside():
        with hakmem.profile(events=True) as taken:
            begun.set()
            outer_ended.wait()
            churn(300)
        found.append(taken)
    found, begun, outer_ended = [], threading.Event(), threading.Event()
    with hakmem.profile(events=True) as outer:
        churn(100)
        with hakmem.profile(events=True) as inner:
            churn(100)
        churn(500)
        thread = threading.Thread(target=beside)
        thread.start()
        begun.wait()
    outer_ended.set()
    thread.join()
    print(json.dumps([sum(line.sums.bytes for line in each.allocated) for each in (outer, inner, *found)]))
    """
    outer, inner, beside = said(code)
    assert outer == pytest.approx(70_000_000, rel=0.02)
    assert inner == pytest.approx(10_000_000, rel=0.02)
    assert beside == pytest.approx(30_000_000, rel=0.02)


def test_a_child_of_fork_leaves_its_parents_block_alone(tmp_path):
    code = """
    with hakmem.profile(sys.argv[1], events=True) as taken:
        mine = [bytearray(1_000_000) for _ in range(10)]
        child = os.fork()
        if child == 0:
            own = [bytearray(1_000_000) for _ in range(200)]
        else:
            os.waitpid(child, 0)
    sys.stdout.write(json.dumps([child == 0, sum(each.change for each in taken.changes)]) + "\\n")
    """
    done = run(code, tmp_path / "taken")
    assert done.returncode == 0, done.stderr
    told = dict(json.loads(line) for line in done.stdout.splitlines())
    assert told[False] == pytest.approx(10_000_000, rel=0.3) and told[True] == pytest.approx(210_000_000, rel=0.3)
    for which in ("before", "after"):
        assert snapshots.read(str(tmp_path / f"taken.{which}")).live_bytes < 100_000_000


def test_an_exception_passes_and_what_it_left_is_told():
    change, early = said(
        """
        taken = hakmem.profile()
        try:
            taken.text()
        except RuntimeError as error:
            early = str(error)
        kept = []
        try:
            with taken:
                kept.append(bytearray(8 << 20))
                raise KeyError
        except KeyError:
            print(json.dumps([taken.changes[0].change, early]))
        """
    )
    assert change == pytest.approx(8 * MIB, rel=0.01) and "has not ended" in early


def test_without_samples_the_reason_is_told():
    done = run("with hakmem.profile() as taken: pass\ntaken.text()", HAKMEM_INSIGHT="0")
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: ") and "no blocks were sampled" in done.stderr


@pytest.mark.parametrize(("allocator", "seen"), [("malloc", True), ("pymalloc", False)])
def test_small_objects_are_in_the_heap_with_pythonmalloc_alone(allocator, seen):
    before, after = said(
        """
        kept = [None] * 200_000
        before = hakmem.stats().live
        for at in range(200_000):
            kept[at] = [at]
        print(json.dumps([before, hakmem.stats().live]))
        """,
        PYTHONMALLOC=allocator,
    )
    grown = after - before
    assert grown > 10 * MIB if seen else grown < MIB

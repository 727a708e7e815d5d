"""hakmem bench: memory over time, its mean and its end."""

from __future__ import annotations

import subprocess
import sys

import pytest
from test_bench import a_run, a_workload, add_server, bench, results_of, tree  # noqa: F401, the fixtures

from hakmem.bench import tables
from hakmem.bench.analysis import END_MEMORY, MEAN_MEMORY, MEMORY, TIME
from hakmem.bench.memory import Watch

MIB = 1024

# A block is there for half of the time, and not at the end. On a busy machine a program begins slowly, and who watches it sees it less
# often: so each half lasts as long as that took, and as such a watch needs for a dozen samples.
HELD = """
import time

def half():
    begun = time.monotonic()
    for _ in range(12):
        before = time.monotonic()
        open("/proc/self/smaps_rollup").read()
        time.sleep(max(0.04, (time.monotonic() - before) * 10))
    time.sleep(max(0, coming + begun - time.monotonic()))

ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
coming = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / 100
block = bytearray(b"x") * (64 << 20)
half()
del block
half()
"""


def watched(samples: list[tuple[float, dict[int, int]]], outlived: bool = False) -> dict:
    watch = Watch(outlived)
    watch._samples = samples
    return watch.summary()


def test_the_mean_is_over_time_and_not_over_samples():
    found = watched([(0.0, {7: 100}), (1.0, {7: 100}), (1.1, {7: 300}), (3.1, {7: 300})])
    assert found == {"mean_rss_kib": round((100 + 20 + 600) / 3.1), "end_rss_kib": 300, "samples": 4, "course": found["course"]}
    assert found["course"] == [[0.0, 100], [1.0, 100], [1.1, 300], [3.1, 300]]
    assert watched([(0.5, {7: 40})]) == {"mean_rss_kib": 40, "end_rss_kib": 40, "samples": 1, "course": [[0.0, 40]]}
    assert watched([]) == {}


def test_of_a_long_course_the_peaks_are_kept():
    samples = [(number / 10, {7: 1000 if number == 5017 else number % 7}) for number in range(10_000)]
    course = watched(samples)["course"]
    assert len(course) == 40 and [501.7, 1000] in course
    assert [at for at, _ in course] == sorted(at for at, _ in course)


def test_the_end_is_that_of_the_process_that_held_most_but_a_servers_is_the_last():
    samples = [(0.0, {1: 2}), (1.0, {1: 2, 7: 500}), (2.0, {1: 2, 7: 90, 8: 10}), (3.0, {1: 2, 9: 5})]
    assert watched(samples)["end_rss_kib"] == 102
    assert watched(samples, outlived=True)["end_rss_kib"] == 7


def test_a_process_and_what_it_starts_are_watched():
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    process = subprocess.Popen(["sh", "-c", f'{sys.executable} -c "{script}" "$0"; true', HELD])
    watch = Watch(outlived=False)
    with watch.over(process.pid):
        process.wait()
    found = watch.summary()
    assert found["samples"] > 10
    assert 20 * MIB < found["mean_rss_kib"] < 60 * MIB
    assert found["end_rss_kib"] < 40 * MIB


def test_memory_is_watched_in_a_run_of_its_own(bench, tree):  # noqa: F811
    tree.add("holds", [sys.executable, "-c", HELD])
    tree.add("itself", ["echo", "figure: a: 1 ns"], "figures = true", group="figures")
    result = bench("--brief", "--repetitions", "2", "--workloads", "*", "--allocators", "system,hakmem")
    seen = [entry for entry in tree.results()["runs"] if entry["kind"] == "memory"]
    assert [(entry["workload"], entry["repetition"]) for entry in seen] == [("holds", 0)] * 2
    for entry in seen:
        assert entry["failure"] is None and TIME not in entry and entry["samples"] > 10
        assert 20 * MIB < entry[MEAN_MEMORY] < 80 * MIB
    (system,) = (entry for entry in seen if entry["allocator"] == "system")
    assert system[END_MEMORY] < 40 * MIB  # glibc gives such a block back at once; another may keep it for a while
    timed = [entry for entry in tree.results()["runs"] if entry["kind"] == "run"]
    assert len(timed) == 8 and not any(MEAN_MEMORY in entry for entry in timed)
    assert "mean resident set" in result.stdout and "resident set at the end" in result.stdout
    markdown = (tree.output / "report.md").read_text()
    assert "mean RSS, all (1) | RSS at the end, all (1)" in markdown
    assert "## Mean resident set, MiB" in markdown and "## Resident set at the end, MiB" in markdown
    page = (tree.output / "report.html").read_text()
    assert '"title":"mean resident set"' in page and '"title":"resident set at the end"' in page


def test_a_server_is_watched_while_its_client_runs(bench, tree):  # noqa: F811
    add_server(tree)
    bench("--brief", "--allocators", "hakmem")
    (seen,) = (entry for entry in tree.entries() if entry["kind"] == "memory")
    assert seen["failure"] is None
    assert (
        48 * MIB < seen[MEAN_MEMORY] < 80 * MIB and 48 * MIB < seen[END_MEMORY] < 80 * MIB
    )  # two seconds before it had less


def a_watch(workload: str, allocator: str, mean: int, end: int) -> dict:
    return a_run(workload, allocator, 0, 0) | {"kind": "memory", MEAN_MEMORY: mean, END_MEMORY: end}


@pytest.fixture
def short():
    """Nothing was seen of b under hakmem."""
    runs = [a_run(workload, allocator, 0, 1.0) for workload in "ab" for allocator in ("system", "hakmem")]
    watches = [a_watch("a", "system", 100, 50), a_watch("a", "hakmem", 150, 25), a_watch("b", "system", 9, 9)]
    for watch in watches:
        del watch[TIME], watch[MEMORY]
    return results_of(runs + watches, [a_workload("a"), a_workload("b")])


def test_the_means_are_over_what_was_seen_under_every_allocator(short):
    assert short.common() == ["a", "b"] and short.common(key=MEAN_MEMORY) == ["a"]
    assert short.mean("hakmem", MEAN_MEMORY) == 1.5 and short.mean("hakmem", END_MEMORY) == 0.5
    assert short.mean("hakmem", TIME) == 1
    table = tables.summary(short)
    assert table.headings[2:] == ["time, all (2)", "peak RSS, all (2)", "mean RSS, all (1)", "RSS at the end, all (1)"]
    assert [cell.text for cell in table.rows[1][2:]] == ["1.000", "1.000", "1.500", "0.500"]
    rows = tables.mebibytes(short, MEAN_MEMORY, "mean resident set").rows
    assert [[cell.text for cell in row] for row in rows] == [["a", "0.1", "0.1"], ["b", "0.0", tables.NONE]]


def test_a_benchmark_that_watched_nothing_has_no_such_columns():
    results = results_of([a_run("a", name, 0, 1.0) for name in ("system", "hakmem")], [a_workload("a")])
    assert tables.summary(results).headings[2:] == ["time, all (1)", "peak RSS, all (1)"]

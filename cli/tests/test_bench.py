"""hakmem bench: what it runs, what it keeps, and what it makes of that."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import HAKMEM

from hakmem import preload
from hakmem.bench import allocators, command, facts, figures, tables
from hakmem.bench.allocators import Allocator
from hakmem.bench.analysis import MEMORY, RATE, TIME, Results, Standing, geometric_mean, own_key
from hakmem.bench.journal import Journal
from hakmem.bench.plan import Choices, Places, Plan
from hakmem.bench.workloads import Workload, choose, expand, lines_of_scaling
from hakmem.errors import Failure

LIBRARY = preload.PACKAGE / "libhakmem.so"

# ---- The statistics ----


def a_workload(name: str, group: str = "synthetic", **others) -> Workload:
    values = {"family": name, "about": "", "command": ["true"], "full": {}, "brief": {}} | others
    return Workload(name=name, group=group, **values)


def a_run(workload: str, allocator: str, repetition: int, seconds: float, kib: int = 1024, failure: str | None = None):
    entry = {"kind": "run", "workload": workload, "allocator": allocator, "repetition": repetition, "failure": failure}
    return entry if failure else entry | {TIME: seconds, MEMORY: kib}


def results_of(runs: list[dict], workloads: list[Workload], reference: str = "system") -> Results:
    names = dict.fromkeys(run["allocator"] for run in runs)
    return Results(
        {
            "reference": reference,
            "size": "full",
            "allocators": [{"name": name, "version": "1"} for name in names],
            "workloads": [vars(workload) for workload in workloads],
            "runs": runs,
        }
    )


@pytest.fixture
def results() -> Results:
    """hakmem wins on a, loses on b, and a peer fails on c."""
    seconds = {
        "a": {"system": (1.0, 3.0, 2.0), "hakmem": (1.0, 1.0, 1.0), "peer": (4.0, 4.0, 4.0)},
        "b": {"system": (1.0, 1.0, 1.0), "hakmem": (2.0, 2.0, 2.0), "peer": (0.25, 0.25, 0.25)},
        "c": {"system": (1.0, 1.0, 1.0), "hakmem": (9.0, 9.0, 9.0)},
    }
    runs = [
        a_run(workload, allocator, number, value)
        for workload, by_allocator in seconds.items()
        for allocator, values in by_allocator.items()
        for number, value in enumerate(values)
    ]
    runs.append(a_run("c", "peer", 0, 1.0))
    runs.append(a_run("c", "peer", 1, 0, failure="died of SIGSEGV"))
    return results_of(runs, [a_workload("a"), a_workload("b", "program"), a_workload("c")])


def test_ratios_are_of_medians(results):
    assert results.spread("a", "system", TIME).median == 2.0
    assert results.ratio("a", "hakmem", TIME) == 0.5
    assert results.ratio("b", "hakmem", TIME, to="peer") == 8.0
    assert results.ratio("b", "hakmem", "system_calls") is None


def test_one_failed_run_fails_the_pair(results):
    assert results.failure("c", "peer") == "died of SIGSEGV"
    assert results.spread("c", "peer", TIME) is None
    assert results.failures() == [("c", "peer", "died of SIGSEGV")]


def test_means_are_over_what_every_allocator_finished(results):
    assert results.common() == ["a", "b"]
    assert results.mean("hakmem", TIME) == pytest.approx(1.0)  # of 0.5 and 2
    assert results.mean("peer", TIME) == pytest.approx((2 * 0.25) ** 0.5)
    assert results.mean("hakmem", TIME, "program") == pytest.approx(2.0)
    assert results.mean_of_best_peers(TIME) == pytest.approx((1.0 * 0.25) ** 0.5)
    assert results.mean("hakmem", TIME, "none such") is None


def test_geometric_mean_needs_every_value():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([2.0, None]) is geometric_mean([]) is geometric_mean([0.0, 1.0]) is None


def test_losses_are_to_the_best_peer_and_the_worst_comes_first(results):
    assert [(loss.workload, loss.peer, loss.ratio) for loss in results.losses(TIME)] == [
        ("c", "system", 9.0),
        ("b", "peer", 8.0),
    ]
    assert results.losses(MEMORY) == []


def test_wins_and_losses_are_counted_against_the_best_peer(results):
    assert results.standing(TIME) == Standing(ahead=1, level=0, behind=2, missing=0)
    assert results.standing(TIME, "program") == Standing(ahead=0, level=0, behind=1, missing=0)
    assert results.standing(MEMORY) == Standing(ahead=0, level=3, behind=0, missing=0)
    assert results.standing("system_calls") == Standing(ahead=0, level=0, behind=0, missing=3)
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in tables.standing(results).rows}
    assert rows["time, all"] == ["1", "0", "2", "0"] and rows["peak RSS, program"] == ["0", "1", "0", "0"]


def test_a_loss_within_three_percent_is_none_and_a_doubtful_one_is_marked():
    runs = [a_run(name, "system", i, 1.0 + 0.1 * i) for name in ("near", "far") for i in range(3)]
    runs += [a_run("near", "hakmem", i, 1.1 * 1.02) for i in range(3)]
    runs += [a_run("far", "hakmem", i, 1.1 * 1.05) for i in range(3)]
    losses = results_of(runs, [a_workload("near"), a_workload("far")]).losses(TIME)
    assert [(loss.workload, loss.overlaps) for loss in losses] == [("far", True)]


def two_allocators(hakmem: tuple[float, ...], system: tuple[float, ...]) -> Results:
    runs = [a_run("a", "system", i, value) for i, value in enumerate(system)]
    return results_of(runs + [a_run("a", "hakmem", i, value) for i, value in enumerate(hakmem)], [a_workload("a")])


def test_an_interval_holds_the_ratio_and_narrows_with_the_spread():
    wide = two_allocators((1.0, 2.0, 3.0, 4.0, 5.0), (1.0,) * 5).interval("a", "hakmem", TIME, "system")
    narrow = two_allocators((2.9, 3.0, 3.0, 3.0, 3.1), (1.0,) * 5).interval("a", "hakmem", TIME, "system")
    assert wide == (1.0, 5.0) and narrow == pytest.approx((2.9, 3.1))
    assert two_allocators((3.0,) * 5, (1.5,) * 5).interval("a", "hakmem", TIME, "system") == (2.0, 2.0)


def test_few_runs_have_no_interval_and_none_stands_out():
    few = two_allocators((2.0, 2.0, 2.0, 9.0), (1.0,) * 4)
    assert few.interval("a", "hakmem", TIME, "system") is None and few.outliers() == []
    assert [cell.text for cell in tables.losses(few, TIME, "time").rows[0]] == ["a", "system", "2.000", tables.NONE]


def test_a_run_that_is_far_off_stands_out_and_stays_in_the_figures():
    results = two_allocators((2.0, 2.02, 9.0, 1.98, 2.01), (1.0, 1.0, 1.0, 1.0, 1.02))  # 2 % is noise
    assert [(run.allocator, run.repetition, run.seconds, run.median) for run in results.outliers()] == [
        ("hakmem", 2, 9.0, 2.01)
    ]
    assert results.spread("a", "hakmem", TIME).most == 9.0
    assert [cell.text for cell in tables.outliers(results).rows[0]] == ["a", "hakmem", "3", "9.000 s", "4.478"]
    interval = results.losses(TIME)[0].interval
    assert interval[0] <= 2.01 <= interval[1]


def test_two_builds_are_paired_within_each_repetition():
    runs = [a_run("a", "baseline", i, 1.0 + i) for i in range(3)] + [
        a_run("a", "hakmem", i, (1.0 + i) * factor) for i, factor in enumerate((0.5, 0.6, 0.4))
    ]
    results = results_of(runs, [a_workload("a")], reference="baseline")
    paired = results.paired("a", TIME)
    assert (paired.median, paired.least, paired.most) == pytest.approx((0.5, 0.4, 0.6))
    assert results.paired_mean(TIME).most == pytest.approx(0.6)


# ---- What workloads measure themselves ----


def test_figures_are_found_among_other_lines():
    lines = ["work: 5 operations", "figure: malloc p99.99: 12.5 ns", "fact: threads, idle: 3 ", "figure: left: 7 KiB"]
    assert figures.parse(lines) == [
        figures.Figure("malloc p99.99", 12.5, "ns", True),
        figures.Figure("threads, idle", 3, "", False),
        figures.Figure("left", 7, "KiB", True),
    ]


@pytest.mark.parametrize(
    "line",
    ["figure: a", "figure: a: x ns", "figure: a: -1 ns", "figure: a: 1 miles", "fact: : 1", "figure: there: 2 ns"],
)
def test_a_line_that_is_no_figure_is_refused(line):
    with pytest.raises(ValueError, match="not a figure"):
        figures.parse(["figure: there: 1 ns", line])


@pytest.fixture
def measured() -> Results:
    """hakmem wins on one figure and loses on another; a plain workload stands beside."""
    values = {"system": (100, 10, 7), "hakmem": (50, 20, 9), "peer": (40, 30, 8)}
    runs = [a_run("plain", name, number, 1.0) for name in values for number in range(3)]
    for name, (won, lost, fact) in values.items():
        for number in range(3):
            own = [("won", won + number, "ns", True), ("lost", lost, "KiB", True), ("fact", fact, "", False)]
            stored = [vars(figures.Figure(*figure)) for figure in own]
            runs.append(a_run("own", name, number, {"system": 1.0}.get(name, 5.0)) | {"figures": stored})
    return results_of(runs, [a_workload("own", "figures", figures=True), a_workload("plain")])


def test_figures_have_medians_and_ratios(measured):
    assert [(figure.name, figure.unit) for figure in measured.figures("own")] == [
        ("won", "ns"),
        ("lost", "KiB"),
        ("fact", ""),
    ]
    assert measured.figures("plain") == []
    assert measured.spread("own", "hakmem", own_key("won")).median == 51
    assert measured.ratio("own", "hakmem", own_key("lost")) == 2
    assert measured.best_peer("own", own_key("won")) == "peer"


def test_a_workload_with_figures_is_in_no_mean_and_no_list_of_losses(measured):
    assert measured.common() == ["plain"] and measured.groups() == ["synthetic"]
    assert measured.mean("hakmem", TIME) == 1 and measured.losses(TIME) == []
    for table in (tables.summary(measured), tables.ratios(measured, TIME, "time")):
        assert "own" not in [row[0].text for row in table.rows]


def test_the_table_of_a_workload_judges_figures_and_not_facts(measured):
    table = tables.one_workload(measured, measured.workloads[0])
    assert table.headings[1:] == ["system", "hakmem", "peer", "hakmem / system", "hakmem / best peer", "best peer"]
    rows = {row[0].text: row[1:] for row in table.rows}
    assert list(rows) == ["time", "peak resident set", "won", "lost", "fact"]
    assert [(cell.text, cell.mark) for cell in rows["won"][3:]] == [("0.505", "win"), ("1.244", "loss"), ("peer", "")]
    assert [(cell.text, cell.mark) for cell in rows["lost"][3:]] == [
        ("2.000", "loss"),
        ("2.000", "loss"),
        ("system", ""),
    ]
    assert [cell.mark for cell in rows["won"][:3]] == ["", "", "best"]
    for name in ("fact", "time"):  # who sleeps has a time that says nothing
        assert {cell.mark for cell in rows[name]} == {""} and [cell.text for cell in rows[name][3:]] == [
            tables.NONE
        ] * 3
    assert tables.one_workload(measured, measured.workloads[1]).rows[0][4].text == "1.000"


def test_a_rate_is_of_the_operations_that_a_run_counted():
    assert figures.operations(["noise", "mixed: 12 operations in 0.5 s, 1 M operations/s"]) == 12
    assert figures.operations(["12 operations", "mixed: many operations in 1 s"]) is None
    runs = [a_run("a", "system", number, seconds) | {"operations": 60} for number, seconds in enumerate((2.0, 3.0, 6.0))]
    assert results_of(runs, [a_workload("a")]).values("a", "system", RATE) == [30, 20, 10]


# ---- What workloads.toml says ----


def test_only_known_names_are_replaced():
    assert expand(["{steps}x", "{ print }", "{other}"], {"steps": "5"}) == ["5x", "{ print }", "{other}"]


def test_workloads_are_chosen_by_name_family_group_and_threads():
    every = [
        a_workload("one-1", family="one", threads=1),
        a_workload("one-2", family="one", threads=2),
        a_workload("two", group="program"),
    ]
    names = lambda *choice: [workload.name for workload in choose(every, *choice)[0]]  # noqa: E731
    assert names([], []) == ["one-1", "one-2", "two"]
    assert names(["program", "one-1"], []) == ["one-1", "two"]
    assert names(["one"], [2]) == ["one-2"]
    assert names(["*-2"], []) == ["one-2"]
    for patterns, threads in ((["three"], []), (["two"], [1])):
        with pytest.raises(Failure):
            choose(every, patterns, threads)
    every.append(a_workload("apart", group="figures", threads=1))
    assert names([], []) == ["one-1", "one-2", "two"] and names([], [1]) == ["one-1"]
    assert names(["figures"], []) == names(["apart"], [1]) == ["apart"] and names(["*"], [1]) == ["one-1", "apart"]


def test_workloads_left_out_are_named():
    every = [a_workload("one"), a_workload("two", packages="bench-big"), a_workload("apart", "figures")]
    names = lambda *choice: tuple([entry.name for entry in part] for part in choose(every, *choice))  # noqa: E731
    assert names([], [], ["bench-big"]) == (["one"], ["two"])
    assert names(["*"], [], ["t*", "figures"]) == (["one"], ["two", "apart"])
    assert names(["bench-big"], []) == (["two"], [])
    assert names(["one"], [], ["two"]) == (["one"], [])  # it was not asked for
    for patterns, without in ((["two"], ["two"]), (["one"], ["three"])):
        with pytest.raises(Failure):
            choose(every, patterns, [], without)


def test_scaling_joins_what_differs_in_threads_alone():
    def made(slots: str, threads: int) -> Workload:
        return a_workload(f"{slots}-{threads}", family="f", threads=threads, command=["p", slots, str(threads)])

    every = [made("64", 2), made("64", 1), made("8", 1), made("8", 4), made("1", 1)]
    assert [[entry.name for entry in line] for line in lines_of_scaling(every)] == [["64-1", "64-2"], ["8-1", "8-4"]]


def test_a_libc_that_does_not_tell_its_version_has_none(monkeypatch):
    def as_musls(name: str) -> str:
        raise OSError(errno.EINVAL, name)

    monkeypatch.setattr("os.confstr", as_musls)
    assert allocators.system().version == "" and "C library" not in facts.machine()


# ---- Who runs when ----


def test_each_repetition_has_its_own_order_and_the_seed_decides_it():
    def orders(seed: int) -> list[tuple[str, ...]]:
        choices = Choices([], [], [], 8, True, 1, seed, "", None, [])
        there = [Allocator(name, name, "", "", None) for name in "abc"]
        plan = Plan(choices, Places(Path(), Path(), Path()), [a_workload("x"), a_workload("y")], there, [])
        steps = [step for step in plan.steps(with_calls=False) if step.kind == "run"]
        assert [step.workload.name for step in steps] == ["x", "x", "x", "y", "y", "y"] * 8
        return [tuple(step.allocator.name for step in steps[i : i + 3]) for i in range(0, len(steps), 3)]

    found = orders(1)
    assert all(sorted(order) == ["a", "b", "c"] for order in found)
    assert {order[0] for order in found} == {"a", "b", "c"}
    assert found == orders(1) != orders(2)


# ---- The journal ----

A_PLAN = {"format": 1, "choices": {}, "machine": {}, "allocators": [], "workloads": []}


def test_a_cut_line_is_dropped_and_the_rest_kept(tmp_path):
    journal = Journal(tmp_path, A_PLAN, resume=False)
    journal.add(a_run("a", "system", 0, 1.0))
    file = tmp_path / "runs.jsonl"
    file.write_text(file.read_text() + '{"kind": "run", "work')
    again = Journal(tmp_path, A_PLAN, resume=True)
    again.add(a_run("a", "system", 1, 2.0))
    assert len(Journal(tmp_path, A_PLAN, resume=True).entries) == 2


@pytest.mark.parametrize("kept", [0, 1, -1], ids=["nothing", "little", "all but the end"])
def test_a_plan_that_was_cut_off_is_no_benchmark(tmp_path, kept):
    Journal(tmp_path, A_PLAN, resume=False)
    file = tmp_path / "runs.jsonl"
    whole = file.read_text()
    file.write_text(whole[:kept])
    with pytest.raises(Failure, match="no benchmark to resume"):
        Journal(tmp_path, A_PLAN, resume=True)
    Journal(tmp_path, A_PLAN, resume=False)
    assert file.read_text() == whole


def test_it_goes_on_with_the_same_allocators_alone(tmp_path):
    Journal(tmp_path, A_PLAN, resume=False)
    with pytest.raises(Failure, match="allocators"):
        Journal(tmp_path, A_PLAN | {"allocators": [{"digest": "another"}]}, resume=True)
    with pytest.raises(Failure, match="--resume"):
        Journal(tmp_path, A_PLAN, resume=False)


# ---- The command, end to end ----


class Tree:
    """A source tree with workloads of a test's own, hakmem, and a peer, which is hakmem too."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = root / "out"
        for folder in ("bench", "build/peers"):
            (root / folder).mkdir(parents=True)
        shutil.copy(LIBRARY, root / "build/libhakmem.so")
        shutil.copy(LIBRARY, root / "build/peers/libpeer.so")
        entry = {"name": "peer", "title": "A peer", "version": "7.1", "source": "nowhere", "library": "libpeer.so"}
        (root / "build/peers/manifest.json").write_text(json.dumps([entry]))
        (root / "bench/workloads.toml").touch()

    def add(
        self, name: str, command: list[str], *lines: str, family: str | None = None, group: str = "synthetic"
    ) -> None:
        head = {"name": name, "group": group, "family": family or name, "about": "Something.", "command": command}
        text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in head.items())
        with (self.root / "bench/workloads.toml").open("a") as file:
            file.write(f"\n[[workload]]\n{text}\n" + "\n".join(lines) + "\n")

    def entries(self) -> list[dict]:
        return [json.loads(line) for line in (self.output / "runs.jsonl").read_text().splitlines()[1:]]

    def results(self) -> dict:
        return json.loads((self.output / "results.json").read_text())


@pytest.fixture
def tree(tmp_path) -> Tree:
    return Tree(tmp_path)


def bench_of(hakmem, tree: Tree):
    def run(*arguments: str, expected: int = 0, **variables) -> subprocess.CompletedProcess:
        result = hakmem("bench", "--root", str(tree.root), "--output", str(tree.output), *arguments, **variables)
        assert result.returncode == expected, result.stderr
        return result

    return run


@pytest.fixture
def bench(hakmem, tree):
    return bench_of(hakmem, tree)


SLOWER_UNDER_HAKMEM = ["sh", "-c", 'case "$LD_PRELOAD" in *libhakmem*) sleep 0.3;; *) sleep 0.01;; esac']
DIES_UNDER_PEER = [
    "sh",
    "-c",
    'case "$LD_PRELOAD" in *libpeer*) echo broken >&2; kill -SEGV $$;; *libhakmem*) ;; *) sleep 0.3;; esac',
]


def strace_works() -> bool:
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


def test_every_pair_is_run_and_reported(bench, tree):
    tree.add("lost", SLOWER_UNDER_HAKMEM)
    tree.add("sized", ["sh", "-c", 'test "$0" = 7', "{n}"], "full = { n = 6 }", "brief = { n = 7 }")
    bench("--brief", "--repetitions", "2", "--seed", "3")
    stored = tree.results()
    runs = [run for run in stored["runs"] if run["kind"] == "run"]
    assert len(runs) == 2 * 2 * 3 and not any(run["failure"] for run in runs)
    assert stored["choices"]["seed"] == 3 and stored["machine"]["kernel"] and stored["hakmem"]["version"]
    assert [entry["version"] for entry in stored["allocators"]][1:] == [stored["hakmem"]["version"], "7.1"]
    first = [(run["repetition"], run["workload"]) for run in runs]
    assert first == sorted(first)  # every allocator on one workload, then the next, and all that again
    for run in runs:
        assert run["seconds"] > 0 and run["peak_rss_kib"] < 64 << 10 and run["minor_faults"] > 0
    if strace_works():
        counts = [run["system_calls"] for run in stored["runs"] if run["kind"] == "calls"]
        assert len(counts) == 6 and min(counts) > 10
    markdown = (tree.output / "report.md").read_text()
    assert "BRIEF SIZES" in markdown
    assert "## Where hakmem is not first: time" in markdown and "| lost |" in markdown.split("not first: time")[1]


def test_a_failed_allocator_is_shown_as_failed(bench, tree):
    tree.add("dies", DIES_UNDER_PEER)
    tree.add("fine", ["true"])
    result = bench("--brief", "--check-failures")  # a peer's failure is the peer's own
    assert "dies failed under peer: died of SIGSEGV: broken" in result.stderr
    markdown = (tree.output / "report.md").read_text()
    assert "| dies | peer | **died of SIGSEGV: broken** |" in markdown
    assert "time, all (1)" in markdown


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["sh", "-c", "exit 3"], "exit 3"),
        (["no-such-program"], "no-such-program: not found"),
        (["sleep", "60"], "timeout after 0.5 s"),
    ],
)
def test_a_failed_workload_fails_the_check(bench, tree, command, reason):
    tree.add("bad", command)
    tree.add("fine", ["true"])
    result = bench("--brief", "--allocators", "system,hakmem", "--timeout", "0.5", "--check-failures", expected=1)
    assert f"bad failed under hakmem: {reason}" in result.stderr
    assert "| fine |" in (tree.output / "report.md").read_text()


def test_without_the_systems_malloc_a_failure_of_the_reference_fails_the_check(bench, tree):
    tree.add("dies", DIES_UNDER_PEER)
    bench("--brief", "--allocators", "peer,hakmem", "--check-failures", expected=1)


def test_a_failed_pair_is_not_run_again(bench, tree):
    tree.add("dies", DIES_UNDER_PEER)
    bench("--brief", "--repetitions", "3")
    assert len([run for run in tree.entries() if run["allocator"] == "peer"]) == 1


def test_prepare_runs_once_without_the_allocator(bench, tree):
    script = 'echo "$LD_PRELOAD" >>{data}/made'
    tree.add("reads", ["test", "-s", "{data}/made"], f"prepare = ['sh', '-c', {json.dumps(script)}]")
    bench("--brief", "--repetitions", "2")
    assert (tree.root / "build/bench/data/brief/made").read_text() == "\n"
    assert not any(run["failure"] for run in tree.entries())


def test_a_version_may_be_in_any_encoding(bench, tree):
    tree.add("fine", ["true"], r"version = ['printf', '\351tude 1.2']")
    bench("--brief", "--allocators", "system,hakmem")
    assert tree.results()["workloads"][0]["version"] == "\ufffdtude 1.2"


def test_what_is_left_out_counts_as_neither_passed_nor_failed(bench, tree):
    tree.add("fine", ["true"])
    tree.add("big", ["no-such-program"], 'packages = "bench-big"')
    result = bench("--brief", "--without", "bench-big", "--check-failures")
    assert "hakmem: left out, so neither passed nor failed: 1: big" in result.stderr
    assert {run["workload"] for run in tree.entries()} == {"fine"}
    assert "left out by choice: big" in (tree.output / "report.md").read_text()


def test_prepare_may_build_the_program(bench, tree):
    build = "printf '#!/bin/sh\\n' >{data}/built; chmod +x {data}/built"
    tree.add("builds", ["{data}/built"], f"prepare = ['sh', '-c', {json.dumps(build)}]")
    bench("--brief", "--check-failures")


def test_two_builds_are_compared_alone(bench, tree):
    tree.add("lost", SLOWER_UNDER_HAKMEM)
    older = tree.root / "older.so"
    shutil.copy(LIBRARY, older)
    result = bench("--brief", "--repetitions", "3", "--baseline", str(older))
    assert [entry["name"] for entry in tree.results()["allocators"]] == ["baseline", "hakmem"]
    assert "hakmem / baseline, paired" in result.stdout
    row = next(line for line in (tree.output / "report.md").read_text().splitlines() if line.startswith("| lost |"))
    assert float(row.split("|")[2].strip(" *").split()[0]) > 2


def test_a_library_that_cannot_be_preloaded_is_refused(bench, tree):
    (tree.root / "build/peers/libpeer.so").write_text("no library")
    tree.add("fine", ["true"])
    assert "can't be preloaded" in bench("--brief", expected=1).stderr


def test_a_peer_that_is_not_asked_for_may_be_gone(bench, tree):
    (tree.root / "build/peers/libpeer.so").unlink()
    tree.add("fine", ["true"])
    bench("--brief", "--allocators", "system,hakmem", "--check-failures")
    tree.output = tree.root / "other"
    assert "libpeer.so does not exist" in bench("--brief", "--allocators", "system,peer", expected=1).stderr
    assert "no allocator 'per'" in bench("--brief", "--allocators", "system,per", expected=1).stderr


# ---- Workloads that measure something themselves ----

MEASURES_ITSELF = [
    "sh",
    "-c",
    'case "$LD_PRELOAD" in *libhakmem*) n=20;; *) n=50;; esac; '
    'echo "it: 5 operations"; echo "figure: wait p99: $n.0 ns"; echo "fact: clock: 7.0 ns"',
]


def test_figures_are_collected_and_reported(bench, tree):
    tree.add("plain", ["true"])
    tree.add("itself", MEASURES_ITSELF, "figures = true", group="figures")
    result = bench("--brief", "--repetitions", "2", "--workloads", "*")
    runs = [run for run in tree.entries() if run["workload"] == "itself"]
    assert [run["kind"] for run in runs] == ["run"] * 6  # none under strace
    for run in runs:
        assert [figure["name"] for figure in run["figures"]] == ["wait p99", "clock"]
        assert run["figures"][0]["value"] == (20 if run["allocator"] == "hakmem" else 50)
    assert all("figures" not in run for run in tree.entries() if run["workload"] == "plain")
    shown = next(line for line in result.stdout.splitlines() if "wait p99" in line)
    assert "20 ns" in shown and "50 ns" in shown and "0.400" in shown
    markdown = (tree.output / "report.md").read_text()
    assert "## itself" in markdown and "| wait p99 | 50 ns | **20 ns** | 50 ns | 0.400 | 0.400 | system |" in markdown
    assert "time, all (1)" in markdown


def test_workloads_of_the_group_figures_run_only_where_they_are_named(bench, tree):
    tree.add("plain", ["true"])
    tree.add("itself", MEASURES_ITSELF, "figures = true", group="figures")
    bench("--brief")
    assert {run["workload"] for run in tree.entries()} == {"plain"}


def test_figures_alone_make_a_report(bench, tree):
    tree.add("itself", MEASURES_ITSELF, "figures = true", group="figures")
    bench("--brief", "--workloads", "itself", "--baseline", str(tree.root / "build/peers/libpeer.so"))
    markdown = (tree.output / "report.md").read_text()
    assert "| wait p99 | 50 ns | **20 ns** | 0.400 |" in markdown and "## Summary" not in markdown


@pytest.mark.parametrize(
    ("prints", "reason"),
    [("nothing", "it printed no figures"), ("figure: a: 1 mile", "not a figure: figure: a: 1 mile")],
)
def test_a_workload_without_the_figures_it_promised_has_failed(bench, tree, prints, reason):
    tree.add("itself", ["echo", prints], "figures = true", group="figures")
    bench("--brief", "--workloads", "itself", "--check-failures", expected=1)
    assert {run["failure"] for run in tree.entries()} == {reason}
    assert "| itself | hakmem | **" + reason in (tree.output / "report.md").read_text()


def test_outside_a_source_tree_it_says_so(hakmem, tmp_path):
    result = hakmem("bench", "--root", str(tmp_path))
    assert result.returncode == 1 and "no bench/workloads.toml" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_benchmark_goes_on(bench, tree, start, number):
    tree.add("quick", ["true"])
    marker = tree.root / "running"
    tree.add("slow", ["sh", "-c", f"touch {marker}; sleep 0.2"])
    process = start("bench", "--root", str(tree.root), "--output", str(tree.output), "--brief", "--repetitions", "2")
    deadline = time.monotonic() + 60
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in errors
    before = tree.entries()
    assert 3 <= len(before) < 12
    assert "can't be changed" in bench("--resume", "--repetitions", "9", expected=2).stderr
    bench("--resume")
    after = tree.entries()
    assert after[: len(before)] == before
    assert len([run for run in after if run["kind"] == "run"]) == 12
    assert len({(run["kind"], run["workload"], run["allocator"], run["repetition"]) for run in after}) == len(after)


def test_the_newest_that_was_stopped_goes_on(tmp_path):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/workloads.toml").touch()
    results = tmp_path / "build/bench/results"

    def resumed() -> str:
        return command._places(str(tmp_path), None, None, resume=True).output.name

    for name, files in (("1", ["runs.jsonl"]), ("2", ["runs.jsonl", "results.json"]), ("3", [])):
        (results / name).mkdir(parents=True)
        for file in files:
            (results / name / file).touch()
    (results / "notes").touch()
    assert resumed() == "1"
    (results / "1/results.json").touch()  # all are done: a report anew
    assert resumed() == "2"


def test_one_of_another_version_does_not_go_on(tree):
    tree.output.mkdir(parents=True)
    (tree.output / "runs.jsonl").write_text('{"choices": {"of another version": 1}}\n')
    result = subprocess.run(
        [HAKMEM, "bench", "--root", tree.root, "--output", tree.output, "--resume"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1 and "another version" in result.stderr and "Traceback" not in result.stderr, result.stderr


# A signal just when subprocess has taken its lock: an exception then leaves the lock held.
SIGNAL_UNDER_THE_LOCK = """
import os, signal, subprocess, threading

class Lock:
    def __init__(self):
        self._lock = threading.Lock()
        self.release = self._lock.release

    def acquire(self, *arguments):
        taken = self._lock.acquire(*arguments)
        if taken and os.path.exists("{marker}"):
            os.unlink("{marker}")
            os.kill(os.getpid(), signal.SIGINT)
        return taken

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()

start = subprocess.Popen.__init__

def start_with_the_lock(self, *arguments, **options):
    start(self, *arguments, **options)
    self._waitpid_lock = Lock()

subprocess.Popen.__init__ = start_with_the_lock
"""


def test_a_benchmark_stops_at_any_moment(tree, start, tmp_path):
    marker = tree.root / "running"
    tree.add("slow", ["sh", "-c", f"touch {marker}; sleep 0.2"])
    (tmp_path / "sitecustomize.py").write_text(SIGNAL_UNDER_THE_LOCK.format(marker=marker))
    process = start(
        "bench", "--root", str(tree.root), "--output", str(tree.output), "--brief", PYTHONPATH=str(tmp_path)
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in errors


# ---- Servers ----

# Both tell when they were there, by a clock that is the same for all processes. Who finds the server ready finds its memory touched.
SERVER = """
import socket, sys, time
begun = time.monotonic()
time.sleep(2)
memory = bytearray(48 << 20)
one = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    word = "preloaded" if "libhakmem" in open("/proc/self/maps").read() else "plain"
    one.accept()[0].sendall(f"{word} {begun}".encode())
"""
CLIENT = """
import os, socket, sys, time
begun = time.monotonic()
said = socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(99).decode()
assert "LD_PRELOAD" not in os.environ
time.sleep(0.2)
with open(sys.argv[2], "a") as log: print(said, begun, time.monotonic(), file=log)
"""


def add_server(tree: Tree, server: str = SERVER, client: str = CLIENT) -> Path:
    log = tree.root / "log"
    tree.add(
        "served",
        [sys.executable, "-c", client, "{port}", str(log)],
        "[workload.server]",
        f"command = {json.dumps([sys.executable, '-c', server, '{port}'])}",
        f"ready = {json.dumps(['bash', '-c', ': </dev/tcp/127.0.0.1/$0', '{port}'])}",
    )
    return log


def test_the_server_runs_under_the_allocator_and_the_client_does_not(bench, tree):
    log = add_server(tree)
    bench("--brief", "--allocators", "system,hakmem")
    runs = [run for run in tree.entries() if run["kind"] == "run"]
    told = [line.split() for line in log.read_text().splitlines()][: len(runs)]
    assert {run["allocator"]: word for run, (word, *_) in zip(runs, told)} == {"system": "plain", "hakmem": "preloaded"}
    for run, (_, *times) in zip(runs, told):
        server_begun, client_begun, client_ended = map(float, times)
        assert run["failure"] is None
        # The client's, which are two seconds less than those since the server began.
        assert client_ended - client_begun < run["seconds"] < client_ended - server_begun
        assert run["peak_rss_kib"] > 48 << 10  # the server's
    if strace_works():
        assert all(run["system_calls"] > 50 for run in tree.entries() if run["kind"] == "calls")


@pytest.mark.parametrize(
    ("server", "client", "timeout", "reason"),
    [
        ("raise SystemExit(4)", CLIENT, 60, "server: exit 4 before it was ready"),
        (SERVER, "raise SystemExit(5)", 60, "client: exit 5"),
        (
            "import signal; signal.signal(15, signal.SIG_IGN)" + SERVER.replace("time.sleep(2)", ""),
            CLIENT,
            6,  # which it takes, once server and client have come up in as much
            "server: timeout after 6 s",
        ),
    ],
)
def test_a_failure_of_server_or_client_is_told(bench, tree, server, client, timeout, reason):
    add_server(tree, server, client)
    bench("--brief", "--allocators", "hakmem", "--timeout", str(timeout), "--check-failures", expected=1)
    assert tree.entries()[0]["failure"].startswith(reason)


def test_a_server_is_looked_for_where_every_command_starts(bench, tree):
    server = ["sh", "-c", "touch up; exec sleep 60"]
    tree.add("served", ["test", "-e", "up"], "[workload.server]", f"command = {json.dumps(server)}", 'ready = ["test", "-e", "up"]')
    bench("--brief", "--allocators", "hakmem", "--timeout", "5", "--check-failures")


def test_no_process_is_left(bench, tree):
    pids = tree.root / "pids"
    tree.add("leaves", ["sh", "-c", f"sleep 600 & echo $! >>{pids}"])
    bench("--brief", "--allocators", "hakmem", "--timeout", "1")
    for pid in pids.read_text().split():
        left = Path(f"/proc/{pid}/stat")
        assert not left.exists() or left.read_text().split()[2] == "Z"

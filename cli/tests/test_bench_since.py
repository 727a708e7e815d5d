"""What changed since an older run of hakmem bench, and which run that is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_bench import a_run, a_workload, bench, results_of, tree  # noqa: F401, the fixtures

from hakmem.bench import since, tables
from hakmem.bench.analysis import MEMORY, TIME, Results
from hakmem.bench.since import Since
from hakmem.errors import Failure


def a_result(times: dict[tuple[str, str], tuple[float, ...]], version: str = "1", **sizes) -> Results:
    """Of hakmem and the system's malloc."""
    runs = [a_run(workload, name, i, value) for (workload, name), row in times.items() for i, value in enumerate(row)]
    names = dict.fromkeys(workload for workload, _ in times)
    results = results_of(runs, [a_workload(name, full={"n": sizes.get(name, "1")}, brief={"n": "0"}) for name in names])
    for entry in results.stored["allocators"]:
        if entry["name"] == "hakmem":
            entry["version"] = version
    results.stored |= {"begun": "once", "hakmem": {"commit": "abc", "version": version}, "machine": {"CPU": version}}
    return results


BEFORE = {
    ("faster", "system"): (1.0, 1.1, 1.2),
    ("faster", "hakmem"): (2.0, 2.1, 2.2),
    ("noisy", "system"): (1.0, 1.1, 1.2),
    ("noisy", "hakmem"): (1.0, 2.0, 3.0),
    ("steady", "system"): (1.0, 1.0, 1.0),
    ("steady", "hakmem"): (1.0, 1.0, 1.0),
    ("resized", "system"): (1.0, 1.0, 1.0),
    ("resized", "hakmem"): (9.0, 9.0, 9.0),
    ("gone", "hakmem"): (1.0, 1.0, 1.0),
}
NOW = BEFORE | {
    ("faster", "hakmem"): (1.0, 1.05, 1.1),
    ("noisy", "hakmem"): (1.5, 1.6, 1.7),
    ("steady", "hakmem"): (1.02, 1.02, 1.02),
    ("resized", "hakmem"): (1.0, 1.0, 1.0),
}
del NOW["gone", "hakmem"]


@pytest.fixture
def compared() -> Since:
    return Since(a_result(NOW, "2", resized="2"), a_result(BEFORE).stored)


def test_what_changed_beyond_the_spread_is_told(compared):
    assert compared.workloads == ["faster", "noisy", "steady"]  # in another size it is another workload
    assert [(name, change.ratio) for name, change in compared.notable("hakmem", TIME)] == [("faster", 0.5)]
    assert not compared.change("noisy", "hakmem", TIME).beyond and not compared.change("steady", "hakmem", TIME).beyond
    assert compared.change("resized", "hakmem", TIME) is None
    assert compared.notable("hakmem", MEMORY) == compared.notable("system", TIME) == []
    assert compared.mean("hakmem", TIME) == pytest.approx((0.5 * 0.8 * 1.02) ** (1 / 3))


def test_the_tables_tell_before_and_now_and_what_the_others_did(compared):
    rows = [[cell.text for cell in row] for row in tables.since_changes(compared).rows]
    assert rows == [["faster", "time", "2.100 s", "1.050 s", "0.500", "1.000"]]
    assert tables.since_changes(compared).rows[0][4].mark == "win"
    means = tables.since_means(compared)
    assert [[cell.text for cell in row[:3]] for row in means.rows] == [["system", "1", "1.000"], ["hakmem", "1 → 2", "0.742"]]
    assert "commit abc" in means.note and "The machines differ in: CPU." in means.note


def test_slower_is_marked_as_a_loss():
    compared = Since(a_result(BEFORE), a_result(NOW).stored)
    assert tables.since_changes(compared).rows[0][4].mark == "loss"


def test_another_size_has_nothing_in_common(compared):
    compared.before.stored["size"] = "brief"
    assert Since(compared.now, compared.before.stored).workloads == []


def test_with_another_server_it_is_another_workload(compared):
    def served(results: Results, *command: str) -> Results:
        for entry in results.stored["workloads"]:
            entry["server"] = {"command": command, "ready": ["true"]}
        return Results(results.stored)

    now = served(compared.now, "server", "--threads", "2")
    assert Since(now, served(compared.before, "server", "--threads", "2").stored).workloads == compared.workloads
    assert Since(now, served(compared.before, "server", "--threads", "8").stored).workloads == []


def a_folder(place: Path, size: str) -> Path:
    place.mkdir(parents=True)
    (place / since.RESULTS).write_text(json.dumps(a_result(BEFORE).stored | {"size": size}))
    return place


def another_versions(place: Path) -> Path:
    file = place / since.RESULTS
    stored = json.loads(file.read_text())
    for entry in stored["workloads"]:
        entry["unheard_of"] = 1
    file.write_text(json.dumps(stored))
    return place


def test_the_newest_older_run_of_the_same_size_is_taken(tmp_path):
    for name, size in (("01", "full"), ("02", "full"), ("03", "brief"), ("05", "full")):
        a_folder(tmp_path / name, size)
    (tmp_path / "02b").mkdir()  # one that was stopped
    (tmp_path / "02c").mkdir()
    (tmp_path / "02c" / since.RESULTS).write_text("{")
    (tmp_path / "02d").mkdir()
    (tmp_path / "02d" / since.RESULTS).write_text("[]")
    another_versions(a_folder(tmp_path / "02e", "full"))
    assert since.newest(tmp_path, tmp_path / "04", "full") == tmp_path / "02"
    assert since.newest(tmp_path, tmp_path / "elsewhere" / "04", "full") == tmp_path / "05"
    assert since.newest(tmp_path, tmp_path / "05", "full") == tmp_path / "02"
    assert since.newest(tmp_path, tmp_path / "01", "full") is since.newest(tmp_path / "none", tmp_path, "full") is None


def test_what_is_no_result_is_refused(tmp_path):
    with pytest.raises(Failure, match="results.json"):
        since.read(tmp_path)
    for text in ("[]", "{}", '{"size": "full"}'):
        (tmp_path / since.RESULTS).write_text(text)
        with pytest.raises(Failure, match="not results"):
            since.read(tmp_path)
    with pytest.raises(Failure, match="another version"):
        since.read(another_versions(a_folder(tmp_path / "other", "full")))


def test_the_command_compares_with_the_last_run(bench, tree):  # noqa: F811
    speed = tree.root / "speed"
    tree.add("naps", ["sh", "-c", f'case "$LD_PRELOAD" in *libhakmem*) sleep $(cat {speed});; *) sleep 0.01;; esac'])
    first = tree.root / "build/bench/results/20200101-000000"
    tree.output = first
    speed.write_text("0.3")
    bench("--brief", "--repetitions", "2")
    assert "Since the last run" not in (first / "report.md").read_text()
    speed.write_text("0.05")
    tree.output = first.with_name("20200102-000000")
    bench("--brief", "--repetitions", "2")
    told = (tree.output / "report.md").read_text()
    assert "## Since the last run" in told and "| naps | time |" in told.split("## What changed under hakmem")[1]
    tree.output = first.with_name("20200103-000000")
    bench("--brief", "--repetitions", "2", "--since", str(first))
    assert "| naps | time |" in (tree.output / "report.md").read_text()
    bench("--brief", "--since", str(tree.root), expected=1)

"""make bench: what it brings before a run, which is what the run asks for, and what it shows before that."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ends
from test_bench import DIES_UNDER_PEER, LIBRARY, a_workload, bench, tree  # noqa: F401, the fixtures

from hakmem.bench import setting_up
from hakmem.bench.plan import Choices

PEERS = Path(__file__).parents[2] / "bench" / "peers"


def choices(*allocators: str, baseline: str | None = None) -> Choices:
    return Choices([], list(allocators), [], 1, True, 1.0, 0, str(LIBRARY), baseline, [])


def test_the_peers_are_those_that_are_asked_for():
    assert setting_up.peers(choices()) is None  # all
    assert setting_up.peers(choices("system", "hakmem", "mimalloc3")) == ["mimalloc3"]
    assert setting_up.peers(choices("system", "hakmem")) == setting_up.peers(choices(baseline="older.so")) == []


def test_the_packages_are_those_of_the_programs_that_are_asked_for():
    own = [a_workload("a"), a_workload("b", "figures")]
    assert setting_up.packages(own) == ["bench-tools"]
    assert setting_up.packages([*own, a_workload("c", "program")]) == ["bench-tools", "bench"]
    big = a_workload("d", "program", packages="bench-big")
    assert setting_up.packages([big, *own]) == ["bench-tools", "bench-big"]


@pytest.fixture
def calls(tree):  # noqa: F811
    """The commands that were run to set things up, as a function."""
    log = tree.root / "calls"
    for name in (setting_up.SET_UP, setting_up.MAKE_PEERS):
        script = tree.root / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"#!{sys.executable}\nimport sys\nprint({script.name!r}, *sys.argv[1:], file=open({str(log)!r}, 'a'))\n")
        script.chmod(0o755)
    return lambda: log.read_text().splitlines() if log.exists() else []


def test_only_what_is_asked_for_is_brought(bench, tree, calls):  # noqa: F811
    tree.add("fine", ["true"])
    tree.add("big", ["true"], 'packages = "bench-big"', group="program")
    bench("--brief", "--set-up", "--workloads", "fine", "--allocators", "system,hakmem,peer")
    directory = tree.root / "build" / "peers"
    assert calls() == ["setup bench-tools", f"make_peers.py --directory {directory} --set-up --only peer"]


def test_without_a_choice_all_of_it_is_brought(bench, tree, calls):  # noqa: F811
    tree.add("fine", ["true"])
    tree.add("big", ["true"], 'packages = "bench-big"', group="program")
    bench("--brief", "--set-up")
    assert calls() == ["setup bench-tools bench-big", f"make_peers.py --directory {tree.root / 'build/peers'} --set-up"]


def test_nothing_is_brought_unless_it_is_asked_for(bench, tree, calls):  # noqa: F811
    tree.add("fine", ["true"])
    bench("--brief")
    bench("--list", "--set-up")
    assert calls() == []


def test_what_cannot_be_brought_ends_it(bench, tree, calls):  # noqa: F811
    tree.add("fine", ["true"])
    (tree.root / setting_up.MAKE_PEERS).write_text("#!/bin/sh\nexit 1\n")
    assert "not all of these peers" in bench("--brief", "--set-up", "--allocators", "hakmem,peer", expected=1).stderr
    bench("--brief", "--set-up")  # of all of them some may be missing
    (tree.root / setting_up.SET_UP).write_text("#!/bin/sh\nexit 1\n")
    tree.output = tree.root / "other"
    assert "packages are missing" in bench("--brief", "--set-up", expected=1).stderr
    assert not tree.output.exists()


def test_a_first_look_comes_before_all_else_and_is_in_no_result(bench, tree, calls):  # noqa: F811
    tree.add("quick", ["sh", "-c", f'echo "run ${{LD_PRELOAD##*/}}" >>{tree.root / "calls"}'])
    tree.add("a-program", ["true"], group="program")
    told = bench("--brief", "--set-up", "--allocators", "system,hakmem").stderr
    assert calls()[:3] == ["run ", "run libhakmem.so", "setup bench-tools bench"]
    assert "a first look, one run each, not part of the results" in told and "hakmem: quick: 0." in told
    assert "hakmem: a-program:" not in told
    assert len([run for run in tree.entries() if run["kind"] == "run"]) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_look_that_is_stopped_leaves_no_process(tree, calls, start, tmp_path, number):  # noqa: F811
    running = tree.root / "running"
    tree.add("slow", ["sh", "-c", f"echo $$ >{running}.new; mv {running}.new {running}; exec sleep 600"])
    process = start("bench", "--root", str(tree.root), "--brief", "--set-up", "--timeout", "300", TMPDIR=str(tmp_path))
    deadline = time.monotonic() + 60
    while not running.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert ends(running.read_text())
    assert process.returncode == 130 and calls() == [] and not list(tmp_path.glob("tmp*"))


def test_a_workload_has_a_line_as_soon_as_its_first_runs_are_done(bench, tree):  # noqa: F811
    tree.add("naps", ["sh", "-c", 'case "$LD_PRELOAD" in *libhakmem*) sleep 0.2;; *libpeer*) sleep 0.05;; *) sleep 0.4;; esac'])
    tree.add("dies", DIES_UNDER_PEER)
    lines = bench("--brief", "--repetitions", "2").stderr.splitlines()
    (naps,) = (at for at, line in enumerate(lines) if line.startswith("naps, first runs: hakmem 0.2"))
    assert "of system's, " in lines[naps] and lines[naps].endswith("of peer's, the best of the others")
    assert lines[naps - 1].startswith("[3/") and lines[naps + 1].startswith("[4/")
    (dies,) = (line for line in lines if line.startswith("dies, first runs:"))
    assert dies.endswith("of system's, the best of the others")  # not of one that has failed


def test_a_group_that_no_list_has_is_refused():
    done = subprocess.run([PEERS.parents[1] / "tools" / "setup", "bench-biig"], capture_output=True, text=True)
    assert done.returncode == 2 and "no list of packages has a group bench-biig" in done.stderr


def test_the_checks_tools_are_made_anew_when_their_python_is_gone(tmp_path):
    pinned = tmp_path / "tools" / "pinned"
    pinned.parent.mkdir()
    shutil.copy(PEERS.parents[1] / "tools" / "pinned", pinned)
    (pinned.parent / "requirements.txt").write_text("# none\n")

    def works() -> bool:
        return subprocess.run([pinned, "python", "-c", ""], env=os.environ | {"PYTHON": sys.executable}).returncode == 0

    assert works()
    python = tmp_path / ".venv" / "tools" / "bin" / "python"
    made = python.lstat().st_mtime_ns
    assert works() and python.lstat().st_mtime_ns == made
    for link in python.parent.glob("python*"):
        link.unlink()
        link.symlink_to("/nonexistent/python3")
    assert works()


# ---- What makes the peers ----


@pytest.fixture
def maker(bench_script, tmp_path, monkeypatch):
    """make_peers.py, run with arguments: its exit status, and the names in the manifest."""
    module = bench_script("peers/make_peers.py")
    made, brought = [], []

    def make(peer: dict, directory: Path, jobs: int) -> dict:
        made.append(peer["name"])
        if peer["name"] in module.absent:
            raise module.Absent("not today")
        library = directory / f"{peer['name']}.so"
        library.touch()
        return {"name": peer["name"], "title": "", "version": "1", "source": "", "library": str(library)}

    monkeypatch.setattr(module, "make", make)
    monkeypatch.setattr(module, "set_up", lambda peers: brought.extend(module.groups(peers)))
    module.absent = ()

    def run(*arguments: str) -> tuple[int, list[str]]:
        monkeypatch.setattr("sys.argv", ["make_peers.py", "--directory", str(tmp_path / "peers"), *arguments])
        status = module.main()
        return status, [entry["name"] for entry in json.loads((tmp_path / "peers" / "manifest.json").read_text())]

    run.module, run.made, run.brought, run.directory = module, made, brought, tmp_path / "peers"
    return run


def test_only_the_named_peers_are_made_and_the_others_stay(maker):
    assert maker("--only", "jemalloc,scudo", "--set-up") == (0, ["jemalloc", "scudo"])
    assert maker.made == ["jemalloc", "scudo"] and maker.brought == ["crates", "libclang-rt-19-dev"]
    maker.made.clear()
    assert maker("--only", "mimalloc3") == (0, ["mimalloc3", "jemalloc", "scudo"])  # in the list's order
    assert maker.made == ["mimalloc3"]
    (maker.directory / "scudo.so").unlink()
    assert maker("--only", "mimalloc3") == (0, ["mimalloc3", "jemalloc"])


def test_a_named_peer_that_is_missing_is_a_failure(maker):
    maker("--only", "jemalloc")
    maker.module.absent = ("jemalloc",)
    assert maker("--only", "mimalloc3,jemalloc") == (1, ["mimalloc3"])
    status, names = maker()
    assert status == 0 and "jemalloc" not in names and len(names) > 5


def test_without_dpkg_debians_peers_are_left_out(maker, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(maker.module.Absent, match="libjemalloc2 is not installed"):
        maker.module.from_debian({"package": "libjemalloc2", "library": "/usr/lib/{multiarch}/libjemalloc.so.2"})


def test_a_peer_that_nobody_knows_is_refused(maker):
    with pytest.raises(SystemExit, match="no peer jemaloc; there are mimalloc3"):
        maker("--only", "jemaloc")


def test_each_group_that_peers_need_is_in_the_list_of_packages(maker):
    peers = maker.module.tomllib.loads((PEERS / "peers.toml").read_text())["peer"]
    lines = (PEERS.parents[1] / "tools" / "packages").read_text().splitlines()
    groups = {line.split()[0] for line in lines if line and not line.startswith("#")}
    assert {*maker.module.groups(peers), setting_up.TOOLS} <= groups

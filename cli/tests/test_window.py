"""Windows: what is to be seen of processes that may not be traced.

Not every kernel has Yama: barred.c, preloaded into the command, refuses what Yama would, and leaves open what that leaves.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import compiled, running
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_metrics
from rich.console import Console

from hakmem import memory, top, window

TESTS = Path(__file__).parent
HELD = 64 << 20
VARIABLES = {"HAKMEM_WINDOW": "1", "HAKMEM_INSIGHT": "2"}  # sites from the first block on


@pytest.fixture(scope="module")
def held(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("held"), TESTS / "held.c", "-g")


@pytest.fixture(scope="module")
def bar(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("barred"), TESTS / "barred.c", "-shared", "-fPIC")


@pytest.fixture
def barred(hakmem, bar):
    """Runs `hakmem ARGUMENTS` where it may trace nobody."""
    return lambda *arguments: hakmem(*arguments, LD_PRELOAD=str(bar))


@pytest.fixture
def bars(monkeypatch) -> Iterator[None]:
    """The same for this process."""
    opened = os.open

    def open_others(path, *words, **options) -> int:
        if Path(path).name == "mem":
            raise PermissionError(13, "Permission denied")
        return opened(path, *words, **options)

    monkeypatch.setattr(memory.os, "open", open_others)


def test_the_bar_bars(barred, held):
    with running(held, "leak") as process:
        refused = barred("profile", str(process.pid))
    assert refused.returncode == 1
    assert "may not be read" in refused.stderr and "HAKMEM_WINDOW=1" in refused.stderr


def test_who_holds_the_memory_is_told(barred, held):
    with running(held, "leak", **VARIABLES) as process:
        shown = json.loads(barred("profile", "--json", str(process.pid)).stdout)
        text = barred("profile", str(process.pid)).stdout
        resident = barred("resident", str(process.pid)).stdout
        table = json.loads(barred("resident", "--json", str(process.pid)).stdout)
    assert shown["process"] == process.pid and shown["window_age"] >= 0
    line = shown["lines"][0]
    assert line["frames"][0]["function"] == "fill"
    assert line["live"] == pytest.approx(HELD, abs=4 * line["error"] + (1 << 20))
    told = r"from its window, \d+\.\d s old"
    assert re.search(told, text) and "fill" in text
    assert re.search(told, resident) and "the program holds it" in resident
    assert table["window_age"] >= 0 and table["resident"] > HELD and table["verdict"]["kind"] == "program"


def test_it_is_told_anew_though_the_process_rests(barred, held):
    """Of an entry that was there before the second is an earlier one."""
    with running(held, "leak", **VARIABLES) as process:
        barred("profile", str(process.pid))
        time.sleep(1.1)
        now = int(time.time())
        shown = json.loads(barred("profile", "--json", str(process.pid)).stdout)
    assert shown["time"] >= now


def test_of_one_that_is_stopped_the_last_is_shown(barred, held):
    with running(held, "leak", **VARIABLES) as process:
        barred("profile", str(process.pid))
        process.send_signal(signal.SIGSTOP)
        stopped = time.time()
        time.sleep(1.1)
        shown = json.loads(barred("profile", "--json", str(process.pid)).stdout)
    assert shown["time"] <= stopped and shown["window_age"] >= 1
    assert shown["live"] >= HELD


def test_it_is_not_looked_through_without_need(hakmem, held):
    with running(held, "leak", **VARIABLES) as process:
        shown = json.loads(hakmem("profile", "--json", str(process.pid)).stdout)
        text = hakmem("resident", str(process.pid)).stdout
    assert shown["window_age"] is None and "window" not in text


@pytest.mark.parametrize(
    "words", [["inspect", "PID", "0x10"], ["arm", "PID"], ["collect", "PID"], ["profile", "--events", "1", "PID"]]
)
def test_what_takes_more_says_so(barred, held, words):
    with running(held, "leak", **VARIABLES) as process:
        refused = barred(*(str(process.pid) if word == "PID" else word for word in words))
    assert refused.returncode == 1
    assert "may not be read" in refused.stderr


def test_metrics(barred, held):
    with running(held, "leak", **VARIABLES) as process, running(held, "leak") as other:
        written = barred("metrics", str(process.pid), str(other.pid)).stdout
    found: dict[str, dict[int, float]] = {}
    for family in parse_metrics(written):
        for sample in family.samples:
            found.setdefault(sample.name, {})[int(sample.labels["pid"])] = sample.value
    assert found["hakmem_readable"] == {process.pid: 1, other.pid: 0}
    assert found["hakmem_window_age_seconds"].keys() == {process.pid}
    assert found["hakmem_live_bytes"][process.pid] >= HELD
    assert found["hakmem_process_resident_bytes"][process.pid] > HELD
    assert "hakmem_resident_bytes" not in found  # no sum of what is not known
    assert process.pid in found["hakmem_function_live_bytes"]


def test_the_list_has_it(barred, held):
    with running(held, "leak", **VARIABLES) as process:
        listed = barred("top").stdout
    (line,) = [line for line in listed.splitlines() if line.split()[:1] == [str(process.pid)]]
    assert "the program holds it" in line and "from its window" in line


def test_the_view_shows_what_it_can(held, bars):
    def screen(view: top.View) -> str:
        console = Console(file=io.StringIO(), width=200)
        console.print(view.render())
        return console.file.getvalue()

    with running(held, "leak", **VARIABLES) as process:
        view = top.View(process.pid)
        view.refresh()
        text = screen(view)
        assert "from its window" in text and "fill" in text and "resident set" in text
        assert view.key("p") and "who keeps pages is not known" in screen(view)
        assert view.key("e")
        text = screen(view)
        assert "who allocates is not known" in text and "not armed" not in text  # nobody can tell
        assert view.key("a") and "not armed: " in screen(view)


def test_a_saved_one_is_read_as_a_snapshot(barred, hakmem, held, tmp_path):
    out = tmp_path / "heap"
    with running(held, "leak", **VARIABLES) as process:
        assert barred("profile", "--save", str(out), str(process.pid)).returncode == 0
    assert "fill" in hakmem("profile", str(out)).stdout
    assert json.loads(hakmem("resident", "--json", str(out)).stdout)["resident"] > HELD


def test_one_that_was_cut_ends_in_a_message(barred, held):
    with running(held, "leak", **VARIABLES) as process:
        file = window._open(process.pid)
        assert file is not None
        os.ftruncate(file, 0)
        os.close(file)
        shown = barred("profile", str(process.pid))
    assert shown.returncode == 2
    assert "not a black box" in shown.stderr and "Traceback" not in shown.stderr


def test_one_that_goes_meanwhile_is_as_none(held, bars, monkeypatch):
    with running(held, "leak", **VARIABLES) as process:
        assert top.look(process.pid).table is not None
        monkeypatch.setattr(window.os, "pread", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        found = top.look(process.pid)
    assert found.table is None and "may not be read" in found.problem


def test_run_has_it_kept(hakmem):
    assert hakmem("run", "--window", "--", "sh", "-c", "echo $HAKMEM_WINDOW").stdout == "1\n"
    assert hakmem("run", "--", "sh", "-c", "echo $HAKMEM_WINDOW").stdout == "\n"
    assert hakmem("run", "--window", "--secure", "--", "true").returncode == 2
    assert hakmem("run", "--window", "--compare", "--", "true").returncode == 2

"""hakmem metrics: what a scraper finds, over HTTP, in a file and on standard output."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from pathlib import Path

import pytest
from heap import Heap
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse
from processes import compiled, running

from hakmem import metrics, resident, top
from hakmem.errors import Failure

TESTS = Path(__file__).parent
HELD = 64 << 20


@pytest.fixture(scope="module")
def held(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("held"), TESTS / "held.c")


def samples(families) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def only(found, name: str, pid: int) -> float:
    (value,) = [value for labels, value in found[name] if labels["pid"] == str(pid)]
    return value


def test_the_parts_sum_to_the_resident_set_and_functions_have_errors(hakmem, held):
    with running(held, "leak", HAKMEM_INSIGHT="2") as process:  # sites from the first block on
        written = hakmem("metrics", str(process.pid)).stdout
    assert written.endswith("# EOF\n")
    found = samples(parse_open(written))
    total = only(found, "hakmem_process_resident_bytes", process.pid)
    parts = {labels["part"]: value for labels, value in found["hakmem_resident_bytes"]}
    assert sum(parts.values()) == pytest.approx(total, abs=1 << 20)
    assert parts["asked"] > 0.8 * HELD
    assert only(found, "hakmem_live_bytes", process.pid) >= HELD
    assert only(found, "hakmem_live_blocks", process.pid) >= HELD // 256
    functions = {labels["function"]: value for labels, value in found["hakmem_function_live_bytes"]}
    errors = {labels["function"]: value for labels, value in found["hakmem_function_live_error_bytes"]}
    assert functions.keys() == errors.keys()
    assert functions["fill"] == pytest.approx(HELD, abs=4 * errors["fill"])
    assert only(found, "hakmem_readable", process.pid) == 1
    assert only(found, "hakmem_read_seconds", process.pid) > 0


def test_what_is_not_sampled_has_no_error_that_is_known(monkeypatch):
    taken = Heap({64: [2] * 60_000, 16: [7] * 4}).sampled(1)
    monkeypatch.setattr(top, "look", lambda process: top.Found(process, "it", resident.of_snapshot(taken), taken))
    found = samples(parse_open(metrics.text_of(metrics.registry_of((1,), 0, 10))))
    live, errors = (
        [labels["function"] for labels, _ in found[f"hakmem_function_live{what}_bytes"]] for what in ("", "_error")
    )
    assert len(live) == 2 and [name for name in live if name not in errors] == ["(not sampled)"]


def test_one_verdict_holds(hakmem, held):
    with running(held, "stacks") as process:
        found = samples(parse_open(hakmem("metrics", "--functions", "0", str(process.pid)).stdout))
    verdicts = {labels["hakmem_verdict"]: value for labels, value in found["hakmem_verdict"]}
    assert [kind for kind, value in verdicts.items() if value] == [resident.OTHER]
    assert len(verdicts) == 7
    assert "hakmem_function_live_bytes" not in found


def test_without_a_process_all_are_told_and_others_are_not(hakmem, held):
    with running(held, "leak") as one, running(held, "stacks") as two, subprocess.Popen(["sleep", "60"]) as other:
        found = samples(parse_open(hakmem("metrics", "--functions", "0").stdout))
        other.kill()
    told = {int(labels["pid"]) for labels, _ in found["hakmem_readable"]}
    assert {one.pid, two.pid} <= told
    assert other.pid not in told


def test_a_scraper_gets_what_is_now_and_the_form_it_asks_for(start, held):
    where = start("metrics", "--listen", "0").stdout.readline().strip()
    assert where.startswith("http://127.0.0.1:")
    with running(held, "leak") as process:
        wanted = urllib.request.Request(where, headers={"Accept": "application/openmetrics-text"})
        with urllib.request.urlopen(wanted) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            found = samples(parse_open(answer.read().decode()))
        assert only(found, "hakmem_live_bytes", process.pid) >= HELD
        with urllib.request.urlopen(where) as answer:
            found = samples(parse(answer.read().decode()))
        assert only(found, "hakmem_live_bytes", process.pid) >= HELD


def test_a_textfile_is_written_whole(hakmem, held, tmp_path):
    file = tmp_path / "hakmem.prom"
    with running(held, "leak") as process:
        hakmem("metrics", "--textfile", str(file), str(process.pid))
    found = samples(parse(file.read_text()))
    assert only(found, "hakmem_process_resident_bytes", process.pid) > HELD
    assert os.listdir(tmp_path) == ["hakmem.prom"]


def test_processes_are_not_read_for_every_scraper_anew(monkeypatch):
    looks = []
    monkeypatch.setattr(top, "look", lambda process: looks.append(process) or top.Found(process, "it"))
    monkeypatch.setattr(top, "is_of_hakmem", lambda found: True)
    registry = metrics.registry_of((1,), 0, 0)
    assert not looks  # registering reads nothing
    first = metrics.text_of(registry)
    assert metrics.text_of(registry) == first
    assert looks == [1]


def test_what_cannot_be_read_says_so():
    found = samples(parse_open(metrics.text_of(metrics.registry_of((1 << 22,), 0, 0))))
    assert only(found, "hakmem_readable", 1 << 22) == 0
    assert "hakmem_live_bytes" not in found


def test_addresses():
    assert metrics.address_of("9435") == ("127.0.0.1", 9435)
    assert metrics.address_of("0.0.0.0:1") == ("0.0.0.0", 1)
    assert metrics.address_of("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", "host:", ":80", "1:70000", "1:-1"):
        with pytest.raises(Failure):
            metrics.address_of(wrong)


def test_wrong_uses_are_refused(hakmem, start, tmp_path):
    assert hakmem("metrics", "--listen", "1", "--textfile", "f").returncode == 2
    assert hakmem("metrics", "--seconds", "5").returncode == 2
    missing = hakmem("metrics", "--textfile", str(tmp_path / "no" / "f"))
    assert missing.returncode == 1
    assert "no such file" in missing.stderr.lower()
    port = start("metrics", "--listen", "0").stdout.readline().strip().rpartition(":")[2].partition("/")[0]
    taken = hakmem("metrics", "--listen", port)
    assert taken.returncode == 1
    assert "in use" in taken.stderr

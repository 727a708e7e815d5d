"""What is allocated, freed soon or not: counted by the process while it is armed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from processes import compiled, running

from hakmem import outside, pprof_files, snapshots
from hakmem.memory import Process
from hakmem.symbols import Symbols

TESTS = Path(__file__).parent
ROUNDS = 400
OFTEN, SELDOM = ROUNDS * 10_000, ROUNDS * 100


@pytest.fixture(scope="module")
def churn(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("churn"), TESTS / "churn.c")


def of_functions(hakmem, *words: str) -> dict[str, dict]:
    done = hakmem("profile", "--by", "function", "--json", *words)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    return {line["frames"][0]["function"]: line for line in shown["allocated"]["lines"]}


def is_near(line: dict, count: int, size: int) -> bool:
    """Within four standard errors."""
    share = 4 / line["events"] ** 0.5
    return abs(line["objects"] / count - 1) < share and abs(line["bytes"] / (count * size) - 1) < share


def test_what_is_allocated_from_the_start_is_counted_by_function(hakmem, churn, tmp_path):
    file = tmp_path / "events"
    with running(churn, str(ROUNDS), HAKMEM_EVENTS="1", HAKMEM_PROFILE=str(file)) as process:
        process.wait(60)
    lines = of_functions(hakmem, str(file))
    assert is_near(lines["often"], OFTEN, 24)
    assert is_near(lines["seldom"], SELDOM, 3000)
    assert is_near(lines["main"], ROUNDS, 40_000)
    shown = hakmem("profile", str(file)).stdout
    assert "allocated while the process was armed" in shown and "seldom" in shown


def test_a_process_is_armed_from_outside_for_a_while(hakmem, churn):
    with running(churn) as process:
        reader = outside.Reader(Process(process.pid))
        assert not reader.allocated()
        lines = of_functions(hakmem, "--events", "0.5", str(process.pid))
        first = reader.allocated()
        assert reader.names.number(reader.names.place("event.until_ms")) == 0
        again = of_functions(hakmem, "--events", "0.5", str(process.pid))
    often, seldom = lines["often"], lines["seldom"]
    error = (1 / often["events"] + 1 / seldom["events"]) ** 0.5
    assert abs(often["objects"] / seldom["objects"] / 100 - 1) < 4 * error
    assert lines["often"]["events"] + lines["seldom"]["events"] + lines["main"]["events"] == sum(
        each.events for each in first.values()
    )
    assert 0.2 < again["often"]["objects"] / lines["often"]["objects"] < 5  # not both times together


def test_pprof_has_the_types(hakmem, churn, tmp_path):
    file = tmp_path / "events"
    with running(churn, "20", HAKMEM_EVENTS="1", HAKMEM_PROFILE=str(file)) as process:
        process.wait(60)
    taken = snapshots.read(str(file))
    assert snapshots.parse(snapshots.text_of(taken)).allocated == taken.allocated
    found = pprof_files._message("Profile").FromString(gzip.decompress(pprof_files.encode(taken, Symbols(taken))))
    names = [found.string_table[each.type] for each in found.sample_type]
    for name, field in (("alloc_objects", "objects"), ("alloc_space", "bytes")):
        at = names.index(name)
        assert sum(each.value[at] for each in found.sample) == sum(
            getattr(each, field) for each in taken.allocated.values()
        )


def test_a_process_that_rests_has_nothing_to_count(hakmem, tmp_path):
    with running(compiled(tmp_path, TESTS / "held.c"), "leak") as process:
        shown = hakmem("profile", "--events", "0.1", str(process.pid))
    assert shown.returncode == 0 and "nothing was counted" in shown.stderr
    assert "allocated while" not in shown.stdout


def test_a_file_can_not_be_armed(hakmem, churn, tmp_path):
    file = tmp_path / "heap"
    with running(churn, "1", HAKMEM_PROFILE=str(file)) as process:
        process.wait(60)
    refused = hakmem("profile", "--events", "1", str(file))
    assert refused.returncode == 2 and "--events is for a process" in refused.stderr

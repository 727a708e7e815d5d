"""What is allocated, freed soon or not: counted by the process while it is armed."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from processes import compiled, running

from hakmem import outside, outside_events, pprof_files, snapshots
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
    assert is_near(lines["main"], ROUNDS, 100_000)
    taken = snapshots.read(str(file))
    exact = {each.block_size: (each.objects, each.bytes) for each in taken.counted.values() if each.block_size in (32, 3072)}
    assert exact[3072] == (SELDOM, SELDOM * 3000)
    assert exact[32][0] >= OFTEN and exact[32][0] < OFTEN + 100
    for field in ("objects", "bytes"):
        assert sum(line[field] for line in lines.values()) == sum(getattr(each, field) for each in taken.counted.values())
    shown = hakmem("profile", str(file)).stdout
    assert "allocated while the process was armed" in shown and "seldom" in shown


def test_a_process_is_armed_from_outside_for_a_while(hakmem, churn):
    with running(churn) as process:
        reader = outside.Reader(Process(process.pid))
        assert not reader.snapshot().counted
        lines = of_functions(hakmem, "--events", "0.5", str(process.pid))
        first = reader.snapshot().events
        assert reader.names.number(reader.names.place("event.until_ms")) == 0
        again = of_functions(hakmem, "--events", "0.5", str(process.pid))
    often, seldom = lines["often"], lines["seldom"]
    error = (1 / often["events"] + 1 / seldom["events"]) ** 0.5
    assert abs(often["objects"] / seldom["objects"] / 100 - 1) < 4 * error
    known = lines["often"]["events"] + lines["seldom"]["events"] + lines["main"]["events"]
    assert known == sum(line["events"] for line in lines.values())
    assert known <= sum(each.events for each in first.values())  # some are from before all threads counted
    assert 0.2 < again["often"]["objects"] / lines["often"]["objects"] < 5  # not both times together


def test_pprof_has_the_types(hakmem, churn, tmp_path):
    file = tmp_path / "events"
    with running(churn, "20", HAKMEM_EVENTS="1", HAKMEM_PROFILE=str(file)) as process:
        process.wait(60)
    taken = snapshots.read(str(file))
    again = snapshots.parse(snapshots.text_of(taken))
    assert (again.allocated, again.events, again.counted) == (taken.allocated, taken.events, taken.counted)
    found = pprof_files._message("Profile").FromString(gzip.decompress(pprof_files.encode(taken, Symbols(taken))))
    names = [found.string_table[each.type] for each in found.sample_type]
    for name, field in (("alloc_objects", "objects"), ("alloc_space", "bytes")):
        at = names.index(name)
        assert sum(each.value[at] for each in found.sample) == sum(
            getattr(each, field) for each in taken.counted.values()
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


def test_a_process_is_armed_and_left_alone(hakmem, churn):
    with running(churn) as process:
        said = hakmem("arm", "--seconds", "50", str(process.pid))
        assert said.returncode == 0 and "counts what it allocates for 50 s" in said.stdout
        reader = outside.Reader(Process(process.pid))
        end = time.monotonic() + 30
        while not reader.snapshot().counted:
            assert time.monotonic() < end
        assert outside_events.counting(reader) == (1, 1)
        assert "no more" in hakmem("arm", "--seconds", "0", str(process.pid)).stdout
        assert reader.names.number(reader.names.place(outside_events.ARMED)) == 0


def test_what_the_option_asks_for_is_not_ended(hakmem, churn):
    with running(churn, HAKMEM_EVENTS="1") as process:
        assert "already" in hakmem("arm", "--seconds", "0", str(process.pid)).stdout


def test_a_process_that_makes_calls_gives_back_what_it_is_asked_to(hakmem, churn):
    with running(churn) as process:
        reader = outside.Reader(Process(process.pid))
        for turn in (1, 2):
            said = hakmem("collect", "--seconds", "30", str(process.pid))
            assert said.returncode == 0 and "resident" in said.stdout, said.stderr
            assert reader.names.number(reader.names.place("request.done")) == turn
        assert process.poll() is None


def test_a_process_that_rests_is_asked_no_more(hakmem, tmp_path):
    with running(compiled(tmp_path, TESTS / "held.c"), "leak", HAKMEM_KEEPER="0") as process:
        said = hakmem("collect", "--seconds", "0.2", str(process.pid))
        assert said.returncode == 1 and "made no call" in said.stderr
        names = outside.Reader(Process(process.pid)).names
        assert names.number(names.place("request.wanted")) == names.number(names.place("request.done")) == 0

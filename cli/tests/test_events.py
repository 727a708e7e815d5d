"""What is allocated, freed soon or not: counted by the process while it is armed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from processes import compiled, running

from hakmem import insight, outside, outside_events, pprof_files, snapshots
from hakmem.memory import Process
from hakmem.snapshots import Allocations, Counted, Snapshot
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


def until(reader: outside.Reader) -> int:
    return reader.names.number(reader.names.place(outside_events.ARMED))


def write_until(reader: outside.Reader, seconds: float) -> int:
    """As another tool does."""
    word = reader.memory.now_ms() + round(1000 * seconds) if seconds else 0
    reader.memory.write(reader.names.place(outside_events.ARMED), word.to_bytes(8, "little"))
    return word


def test_a_process_that_is_armed_for_less_is_armed_for_as_long_as_is_asked(hakmem, start, churn):
    with running(churn) as process:
        reader = outside.Reader(Process(process.pid))
        least = write_until(reader, 60)  # the command has started by then, on a busy machine too
        counting = start("profile", "--events", "90", "--json", str(process.pid))
        while counting.poll() is None and until(reader) == least:
            time.sleep(0.01)
        raised = until(reader)
        counting.kill()
        counting.communicate(timeout=60)
        assert raised >= least + 20_000, "it was left at the shorter time"


def test_how_long_a_process_was_armed_stays_as_others_want_it(churn):
    with running(churn) as process:
        reader = outside.Reader(Process(process.pid))
        theirs = write_until(reader, 30)
        with outside_events.armed(reader, 60):
            assert until(reader) > theirs + 30_000
        assert until(reader) == theirs
        with outside_events.armed(reader, 1):
            assert until(reader) == theirs
        assert until(reader) == theirs
        with outside_events.armed(reader, 60):
            theirs = write_until(reader, 90)
        assert until(reader) == theirs


def test_the_first_of_two_tools_leaves_the_process_armed_for_the_second(churn):
    with running(churn) as process:
        reader = outside.Reader(Process(process.pid))
        first, second = outside_events.armed(reader, 1), outside_events.armed(reader, 30)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert until(reader) > reader.memory.now_ms() + 30_000
        time.sleep(0.01)
        with outside_events.armed(reader, 20):
            pass
        assert until(reader) > reader.memory.now_ms() + 30_000
        second.__exit__(None, None, None)
        assert until(reader) < reader.memory.now_ms() + 10_000


def test_a_process_that_others_arm_no_more_was_counted_for_less(hakmem, start, churn):
    with running(churn) as process:
        reader = outside.Reader(Process(process.pid))
        counting = start("profile", "--events", "20", "--json", str(process.pid))
        while not until(reader):
            assert counting.poll() is None
        while counting.poll() is None:  # until it has begun to wait, it arms anew
            time.sleep(0.5)
            write_until(reader, 0)
        shown, said = counting.communicate(timeout=60)
        seconds = json.loads(shown)["allocated"]["seconds"]
        assert 0 < seconds < 10
        assert said == f"hakmem: counted for {seconds:g} s instead of 20: then somebody disarmed the process\n"


@pytest.mark.parametrize("ahead", [1000, -30])
def test_a_process_in_another_time_namespace_is_armed_by_its_own_clock(hakmem, churn, ahead):
    apart = ["unshare", "-T", "--monotonic", str(ahead), "--fork", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no time namespace can be had")
    with running(*apart, churn) as parent:
        process = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().strip()
        assert of_functions(hakmem, "--events", "0.5", process)["often"]["objects"] > 1000
        assert hakmem("arm", "--seconds", "20", process).returncode == 0
        due = time.monotonic() + ahead + 20
        assert abs(until(outside.Reader(Process(int(process)))) / 1000 - due) < 10


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
    assert refused.returncode == 2 and "--events needs a running process" in refused.stderr


def test_a_process_is_armed_and_left_alone(hakmem, churn):
    with running(churn) as process:
        said = hakmem("arm", "--seconds", "50", str(process.pid))
        assert said.returncode == 0 and "counting allocations for 50 s" in said.stdout
        assert "callers" not in said.stdout
        reader = outside.Reader(Process(process.pid))
        end = time.monotonic() + 30
        while not reader.snapshot().counted:
            assert time.monotonic() < end
        assert outside_events.counting(reader) == (1, 1)
        assert "no longer counting" in hakmem("arm", "--seconds", "0", str(process.pid)).stdout
        assert reader.names.number(reader.names.place(outside_events.ARMED)) == 0


def test_a_process_without_stacks_is_armed_and_that_is_said(hakmem, churn):
    with running(churn, HAKMEM_INSIGHT="0") as process:
        said = hakmem("arm", "--seconds", "50", str(process.pid))
    assert said.returncode == 0 and "callers are not recorded" in said.stdout


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


def test_a_process_that_is_stopped_is_told_as_such(hakmem, churn):
    with running(churn) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        asked = hakmem("collect", "--seconds", "0.2", str(process.pid))
        assert asked.returncode == 1 and asked.stdout == ""
        assert asked.stderr == f"hakmem: process {process.pid} is stopped, and does nothing until it continues; the request was withdrawn\n"
        counted = hakmem("profile", "--events", "0.1", str(process.pid))
        assert counted.returncode == 0 and "nothing was counted: the process is stopped\n" in counted.stderr
        process.send_signal(signal.SIGCONT)
        assert "resident" in hakmem("collect", "--seconds", "30", str(process.pid)).stdout


def test_functions_are_told_where_a_site_began_between_two_readings():
    """What sites have allocated is read before what they have of each size."""
    taken = Snapshot(sites={1: (0, 16), 2: (0, 32)}, allocated={1: Allocations(1, 2, 64)}, counted={0: Counted(32, 4, 128)})
    taken.events = {(1, 0): Allocations(1, 2, 64), (2, 0): Allocations(1, 2, 64)}
    rows = insight.allocated_rows(taken, Symbols(taken), insight.FUNCTION)
    assert sum(row.sums.bytes for row in rows) == 128

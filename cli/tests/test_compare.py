"""hakmem run --compare: both allocators in turn, figures of the command alone, its end passed through."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from conftest import HAKMEM as COMMAND

from hakmem.compare import Comparison, order
from hakmem.render import outcome_lines
from hakmem.runs import HAKMEM, MEASURES, SYSTEM, Run


def a_run(seconds: float = 1.0, exit_code: int = 0, **others) -> Run:
    values = {
        "user_seconds": 0.5,
        "system_seconds": 0.25,
        "peak_rss_kib": 1024,
        "minor_faults": 10,
        "major_faults": 0,
        "signal": None,
    }
    return Run(seconds=seconds, exit_code=exit_code, **(values | others))


@pytest.fixture
def compare(hakmem, tmp_path):
    """Compares COMMAND; returns the finished process and the JSON it wrote."""

    def run(*command: str, repetitions: int = 3, options: tuple[str, ...] = (), **variables):
        file = tmp_path / "comparison.json"
        arguments = ("--compare", "--repetitions", str(repetitions), "--json", str(file), *options)
        result = hakmem("run", *arguments, "--", *command, **variables)
        return result, json.loads(file.read_text())

    return run


def test_each_allocator_runs_as_often_and_in_turn(compare, tmp_path):
    log = tmp_path / "log"
    _, comparison = compare("sh", "-c", f"echo $LD_PRELOAD >> {log}", repetitions=4)
    under_hakmem = ["libhakmem.so" in line for line in log.read_text().splitlines()]
    assert under_hakmem == [name == HAKMEM for name in order(4)]
    assert under_hakmem.count(True) == under_hakmem.count(False) == 4
    assert {name: len(runs) for name, runs in comparison["runs"].items()} == {SYSTEM: 4, HAKMEM: 4}


def test_figures_are_those_of_the_command(compare):
    program = "x = bytearray(64 << 20); n = 0\nwhile n < 300000: n += 1"
    _, comparison = compare(sys.executable, "-S", "-c", program)
    for runs in comparison["runs"].values():
        for run in runs:
            assert 64 << 10 < run["peak_rss_kib"] < 128 << 10
            assert 0 < run["cpu_seconds"] <= run["seconds"] * 1.5
            assert run["cpu_seconds"] == pytest.approx(run["user_seconds"] + run["system_seconds"])
            assert run["minor_faults"] > 0


def test_peak_of_a_small_command_is_small(compare):
    _, comparison = compare("true")
    assert comparison["median"][SYSTEM]["peak_rss_kib"] < 4 << 10


def test_table_shows_every_measure_side_by_side(compare):
    result, comparison = compare("true")
    assert "system malloc" in result.stdout and "hakmem" in result.stdout
    for measure in MEASURES:
        assert measure.title in result.stdout
        assert set(comparison["ratio"]) == {measure.key for measure in MEASURES}
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize("code", [0, 3])
def test_exit_code_is_the_commands(compare, code):
    result, comparison = compare("sh", "-c", f"exit {code}")
    assert result.returncode == code
    assert comparison["complete"]
    assert ("under hakmem: exit 3" in result.stderr) == (code == 3)


def test_exit_code_under_hakmem_alone_is_told(compare):
    result, _ = compare("sh", "-c", 'case "$LD_PRELOAD" in *hakmem*) echo why >&2; exit 9; esac')
    assert result.returncode == 9
    assert "3 of 3 runs under hakmem: exit 9" in result.stderr
    assert "why" in result.stderr
    assert "under system" not in result.stderr
    assert "No ratios" in result.stdout  # a run that fails early is no gain


def test_death_by_signal_ends_the_comparison(compare):
    result, comparison = compare("sh", "-c", "kill -ABRT $$")
    assert result.returncode == -signal.SIGABRT
    assert "1 of 1 runs under system: died of SIGABRT" in result.stderr
    assert not comparison["complete"]


def test_signal_sent_to_it_reaches_the_command(start):
    waits = 'trap "echo got; exit 5" TERM; echo up; while :; do sleep 0.05; done'
    process = start("run", "--compare", "--show-output", "--", "sh", "-c", waits)
    assert process.stdout.readline() == "up\n"
    process.terminate()
    output, _ = process.communicate(timeout=20)
    assert output.startswith("got\n")
    assert process.returncode == 5


def test_output_is_shown_only_when_asked_for(compare):
    assert "hello" not in compare("sh", "-c", "echo hel''lo")[0].stdout
    assert compare("sh", "-c", "echo hel''lo", options=("--show-output",))[0].stdout.count("hello\n") == 6


def test_file_on_standard_input_is_read_by_every_run(environment, tmp_path):
    file = tmp_path / "input"
    file.write_text("skipped\nkept\n")
    with file.open() as input:
        input.buffer.raw.seek(8)
        result = subprocess.run(
            [COMMAND, "run", "--compare", "--repetitions", "3", "--show-output", "--", "cat"],
            stdin=input,
            capture_output=True,
            text=True,
            env=environment,
        )
    assert result.stdout.count("kept\n") == 6
    assert "skipped" not in result.stdout


def test_hakmem_already_preloaded_is_not_part_of_the_system_side(compare, tmp_path):
    log = tmp_path / "log"
    compare("sh", "-c", f"echo x$LD_PRELOAD >> {log}", LD_PRELOAD="libm.so.6:libhakmem.so")
    system, under_hakmem = log.read_text().splitlines()[:2]
    assert system == "xlibm.so.6"
    assert under_hakmem.startswith("xlibm.so.6:/") and under_hakmem.count("libhakmem.so") == 1


def test_fewer_than_three_repetitions_are_refused(hakmem):
    assert hakmem("run", "--compare", "--repetitions", "2", "--", "true").returncode == 2


def test_medians_ratios_and_spread():
    comparison = Comparison(["x"], 3)
    comparison.runs[SYSTEM] = [a_run(seconds) for seconds in (4.0, 2.0, 9.0)]
    comparison.runs[HAKMEM] = [a_run(seconds) for seconds in (1.0, 3.0, 2.0)]
    time, major = MEASURES[0], MEASURES[-1]
    spread = comparison.spread(SYSTEM, time)
    assert (spread.median, spread.least, spread.most) == (4.0, 2.0, 9.0)
    assert comparison.ratio(time) == 0.5
    assert comparison.ratio(major) is None
    assert spread.overlaps(comparison.spread(HAKMEM, time))
    assert outcome_lines(comparison) == []

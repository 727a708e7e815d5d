"""hakmem run --compare: both allocators in turn, figures of the command alone, its end passed through."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HAKMEM as COMMAND

from hakmem import peers, ranks
from hakmem.bench import allocators
from hakmem.compare import Comparison, order
from hakmem.errors import Failure
from hakmem.render import comparison_markdown, outcome_lines, verdict_lines
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
    assert "No ratios" in " ".join(result.stdout.split())  # a run that fails early is no gain


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
    output, _ = process.communicate(timeout=60)
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


# ---- The verdict ----


def compared(system: tuple, hakmem: tuple, peaks: tuple = (1000, 1000), **others) -> Comparison:
    """Each allocator's seconds; and the peaks of the system's and hakmem's runs."""
    comparison = Comparison(["x"], len(system))
    for name, seconds, peak in zip((SYSTEM, HAKMEM), (system, hakmem), peaks):
        comparison.runs[name] = [a_run(each, peak_rss_kib=peak, **others) for each in seconds]
    return comparison


def test_verdict_says_how_much_faster_and_with_what_peak():
    slow, fast = (4.0, 4.2, 3.8, 4.1, 3.9), (2.0, 2.1, 1.9, 2.05, 1.95)
    # The deviations are 4 % each; those of the medians, together: 2.00 * sqrt(2) * 0.04 * 1.25 / sqrt(5).
    faster = verdict_lines(compared(slow, fast, (1000, 910)))
    assert faster == ["hakmem was 2.00 ± 0.06 times faster than system, with 0.91 of its peak"]
    slower = verdict_lines(compared(fast, slow, (1000, 1100)))
    assert slower == ["hakmem was 2.00 ± 0.06 times slower than system, with 1.10 of its peak"]


def test_verdict_makes_nothing_of_noise():
    wide, narrow = (1.0, 2.0, 3.0, 2.0, 2.0), (1.0, 1.1, 1.2, 1.1, 1.1)
    assert verdict_lines(compared(wide, narrow)) == ["hakmem against system: no difference beyond noise"]
    assert verdict_lines(compared(wide, narrow, (1000, 500))) == [
        "hakmem against system: no difference beyond noise in time, with 0.50 of its peak"
    ]
    assert verdict_lines(compared(wide, (9.0,) * 5))[0].endswith("with no difference in peak beyond noise")


def test_verdict_takes_five_runs():
    for runs in (3, 4):
        comparison = compared((2.0,) * runs, (1.0,) * runs, (1000, 500))
        (verdict,) = verdict_lines(comparison)
        assert "too few runs" in verdict and "takes 5" in verdict
        assert "| ~0.50 |" in comparison_markdown(comparison)


def test_one_disturbed_run_hides_no_difference():
    system, hakmem = [1.5 + each / 100 for each in range(41)], [1.0 + each / 100 for each in range(41)]
    hakmem[7] = 9.0
    (verdict,) = verdict_lines(compared(tuple(system), tuple(hakmem)))
    assert "times faster" in verdict


def test_a_difference_smaller_than_its_error_is_none():
    system, hakmem = (1.00, 1.00, 1.00, 1.00, 1.00), (1.01, 1.01, 1.01, 1.02, 3.0)
    assert "no difference beyond noise" in verdict_lines(compared(system, hakmem))[0]


def test_equal_libraries_rarely_differ():
    draw = random.Random(1)
    told = 0
    for runs in (3, 5, 9, 41):
        for _ in range(100):
            one, other = (tuple(draw.lognormvariate(0, 0.1) for _ in range(runs)) for _ in range(2))
            told += "times" in verdict_lines(compared(one, other))[0]
    assert told <= 13  # 2 % of 300 are 6


def test_processor_time_is_mentioned_where_time_is_undecided():
    wide = (1.0, 2.0, 3.0, 2.0, 2.0)
    comparison = compared(wide, wide, (1000, 500))
    comparison.runs[HAKMEM] = [a_run(each, peak_rss_kib=500, user_seconds=0.125) for each in wide]
    assert verdict_lines(comparison) == [
        "hakmem against system: no difference beyond noise in time, with 0.50 of its processor time and with 0.50 of its peak"
    ]


@pytest.mark.parametrize(("one", "other", "expected"), [
    ([1, 2, 3], [4, 5, 6], 0.1),
    ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 2 / 252),
    ([1, 1, 2], [1, 1, 2], 1.0),
    ([1.0] * 5, [1.0] * 5, 1.0),
    ([1.0] * 20, [1.0] * 20, 1.0),
    (list(range(20)), list(range(5, 25)), 0.0185),  # the normal distribution
])  # fmt: skip
def test_chance_of_ranks(one, other, expected):
    assert ranks.chance(one, other) == ranks.chance(other, one) == pytest.approx(expected, abs=1e-3)


def test_no_verdict_on_few_runs_or_different_ends():
    assert not verdict_lines(compared((1.0, 1.0), (2.0, 2.0)))
    comparison = compared((1.0, 1.0, 1.0), (2.0, 2.0, 2.0))
    comparison.runs[HAKMEM][0] = a_run(exit_code=1)
    assert not verdict_lines(comparison)
    assert "No ratios" in comparison_markdown(comparison)


def test_verdict_is_the_last_line_and_in_the_json_and_the_markdown(compare, tmp_path):
    file = tmp_path / "comparison.md"
    result, comparison = compare("sh", "-c", "echo '[x|y]' | cat", options=("--markdown", str(file)))
    (verdict,) = comparison["verdict"]
    assert result.stdout.splitlines()[-1] == verdict and "hakmem" in verdict and "system" in verdict
    text = file.read_text()
    assert text.splitlines()[0] == "    sh -c 'echo '\"'\"'[x|y]'\"'\"' | cat'"
    assert text.splitlines()[-1] == verdict
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(MEASURES) and {line.count("|") for line in lines} == {5}
    assert "[x|y]" in result.stdout  # what a command has in brackets is not markup


def test_names_do_not_break_the_markdown():
    comparison = Comparison(["x"], 3, (SYSTEM, "a|b", HAKMEM))
    comparison.runs = {name: [a_run()] * 3 for name in comparison.allocators}
    assert "| system malloc | a\\|b | hakmem | ratio to system | ratio to a\\|b |" in comparison_markdown(comparison)


# ---- Other allocators ----

OTHER = """
#include <stddef.h>
void *__libc_malloc(size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A library that passes for an allocator."""
    directory = tmp_path_factory.mktemp("other")
    (directory / "other.c").write_text(OTHER)
    library = directory / "libother.so.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, directory / "other.c"], check=True)
    return library


def logged(compare, log, *options: str, repetitions: int = 3) -> tuple[list[str], dict]:
    """What each run had for LD_PRELOAD, and for HAKMEM_TEST_PEER."""
    _, comparison = compare(
        "sh", "-c", f"echo $LD_PRELOAD $HAKMEM_TEST_PEER >> {log}", options=options, repetitions=repetitions
    )
    return log.read_text().splitlines(), comparison


def test_another_allocator_by_path(compare, tmp_path, other):
    lines, comparison = logged(compare, tmp_path / "log", "--with", str(other))
    names = list(comparison["runs"])
    assert names == [SYSTEM, "other", HAKMEM]
    assert {name: len(runs) for name, runs in comparison["runs"].items()} == dict.fromkeys(names, 3)
    ran = [SYSTEM if not line else "other" if line == str(other) else HAKMEM for line in lines]
    assert ran == list(order(3, names))
    assert {ran[0], ran[3], ran[6]} == set(names)  # each is first in its turn
    assert comparison["allocators"]["other"]["library"] == str(other)
    assert set(comparison["ratios"]) == {SYSTEM, "other"} and comparison["ratios"][SYSTEM] == comparison["ratio"]
    assert ["system" in line for line in comparison["verdict"]] == [True, False]
    assert "other" in comparison["verdict"][1]


def test_several_of_one_name_have_names_of_their_own(hakmem, tmp_path, other):
    copy = tmp_path / "libother.so"
    copy.write_bytes(other.read_bytes())
    result = hakmem("run", "--compare", "--repetitions", "3", "--with", str(other), "--with", str(copy), "--", "true")
    assert f"ratio to {copy}" in result.stdout and "ratio to other" in result.stdout
    again = hakmem("run", "--compare", "--with", str(other), "--with", str(other), "--", "true")
    assert (again.returncode, again.stderr) == (1, f"hakmem: --with {other}: {other} is already in the comparison\n")


def test_secure_library_takes_the_place_of_the_default_one(compare, tmp_path):
    lines, comparison = logged(compare, tmp_path / "log", "--secure")
    assert list(comparison["runs"]) == [SYSTEM, "hakmem-secure"]
    assert sum(line.endswith("/libhakmem-secure.so") for line in lines) == 3
    assert not any(line.endswith("/libhakmem.so") for line in lines)


def test_peers_that_the_tree_has_are_found_by_name(compare, tmp_path, other, monkeypatch):
    manifest = tmp_path / "build" / "peers" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    entry = {"title": "t", "version": "9", "source": "s", "library": str(other), "env": {"HAKMEM_TEST_PEER": "yes"}}
    broken = {"name": "broken", "title": "t", "version": "1", "source": "s", "library": "none.so"}
    manifest.write_text(json.dumps([broken, entry | {"name": "peer3"}]))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    for number, name in enumerate(("peer3", "peer")):
        lines, comparison = logged(compare, tmp_path / f"log{number}", "--with", name)
        assert list(comparison["runs"]) == [SYSTEM, "peer3", HAKMEM]
        assert [line for line in lines if line.endswith("yes")] == [f"{other} yes"] * 3
        assert comparison["allocators"]["peer3"]["version"] == "9"


def test_libraries_of_the_system_are_found_by_name(tmp_path, other, monkeypatch):
    monkeypatch.setattr(peers, "_ROOT", tmp_path)
    monkeypatch.setattr(peers, "_listed_by_loader", list)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "usr" / "lib" / "any-linux"
    folder.mkdir(parents=True)
    with pytest.raises(Failure, match="no allocator 'tcmalloc' .*Debian has it in the package libtcmalloc-minimal4"):
        peers._find("tcmalloc")
    with pytest.raises(Failure, match="no allocator 'nonesuch' .*known names are jemalloc"):
        peers._find("nonesuch")
    (folder / "libtcmalloc_minimal.so.3").write_text("no library")
    with pytest.raises(Failure, match="no allocator 'tcmalloc' can be used: .*can't be preloaded"):
        peers._find("tcmalloc")
    for name in ("libtcmalloc_minimal.so.4", "libnonesuch.so.1"):
        (folder / name).write_bytes(other.read_bytes())
    assert peers._find("tcmalloc").library == str(folder / "libtcmalloc_minimal.so.4")
    assert peers._find("nonesuch").library == str(folder / "libnonesuch.so.1")
    monkeypatch.setattr(peers, "_listed_by_loader", lambda: [tmp_path / "libx.so", other.with_name("libother.so.2")])
    assert peers._find("other").library == str(other)


@pytest.mark.parametrize(
    ("name", "message"), [("libm.so.6", "is not an allocator: it defines no malloc"), ("/no/such.so", "does not exist")]
)
def test_what_is_no_allocator_is_one_line(hakmem, name, message):
    result = hakmem("run", "--compare", "--with", name, "--", "true")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert message in result.stderr


def test_a_library_at_a_path_in_no_encoding_is_refused_in_a_line(tmp_path):
    library = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.so"))
    library.write_text("no library")
    with pytest.raises(Failure, match="can't be preloaded"):
        allocators.check_preload(library)

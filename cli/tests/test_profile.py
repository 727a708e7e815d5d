"""hakmem profile: estimates that sum to what the allocator counted, with honest errors."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest
from heap import RATE, Heap, mixed, text_of
from processes import KNOWN, compiled, running

from hakmem import snapshots
from hakmem.estimates import NOT_SAMPLED, apportion, estimate
from hakmem.snapshots import Sample, SizeClass, Snapshot

# 60, 30 and 10 % of 12 MiB in blocks of two sizes, and site 5 alone in a class of its own.
SHARES = Heap(
    {
        64: mixed({2: 60_000, 3: 30_000, 4: 10_000}, free=7_000),
        1024: mixed({2: 3_600, 3: 1_800, 4: 600}, free=200),
        2048: mixed({5: 1_024}, free=64),
    }
)


def small(samples: list[tuple[int, int]], live: int = 1000, size: int = 64) -> Snapshot:
    """One class; so many samples of each site."""
    taken = Snapshot(rate=RATE, classes=[SizeClass(size, 1 << 16, 1, live, 0, 0, 0)])
    for site, count in samples:
        for _ in range(count):
            taken.samples.append(
                Sample(len(taken.samples) << 16, size, 48, size / RATE, site, site % 2, 10.0 * site, False)
            )
    return taken


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("seed", range(5))
def test_each_class_sums_to_the_byte(seed):
    heap = Heap(SHARES.owners, [(2, 40 << 10), (3, 70 << 10), (4, 100 << 10), (6, 300 << 10)] * 9)
    taken = heap.sampled(seed)
    lines = estimate(taken, lambda sample: (sample.site, sample.size if sample.size < 4096 else 0))
    by_class: Counter = Counter()
    objects: Counter = Counter()
    for line in lines:
        by_class[line.key[1]] += line.bytes
        objects[line.key[1]] += line.objects
    assert by_class == {each.block_size: each.live * each.block_size for each in taken.classes} | {0: taken.large_bytes}
    assert objects == {each.block_size: each.live for each in taken.classes} | {0: taken.large_blocks}
    assert sum(line.bytes for line in estimate(taken)) == taken.live_bytes


def test_estimates_are_unbiased_and_their_errors_honest():
    blocks = {2: 30_720, 3: 15_360, 4: 5_120}
    of_4k = {site: count // 4 for site, count in blocks.items()}
    heap = Heap({1024: mixed(blocks, free=1_000), 4096: mixed(of_4k, free=300), 2048: mixed({5: 4096}, free=64)})  # 108 MiB
    truth = heap.held()
    runs = 400
    off: dict[int, list[float]] = {site: [] for site in (2, 3, 4)}
    for seed in range(runs):
        lines = {line.key: line for line in estimate(heap.sampled(seed))}
        assert lines[5].bytes == truth[5] and 0 < lines[5].error < RATE  # nobody else is in its class, as far as samples tell
        for site, found in off.items():
            found.append((lines[site].bytes - truth[site]) / lines[site].error)
    for found in off.values():
        within = sum(abs(each) <= 2 for each in found)
        assert within >= 0.93 * runs
        assert abs(sum(found) / runs) < 0.35  # of a standard error
        assert math.sqrt(sum(each * each for each in found) / runs) > 0.5  # nor are they told too large


def class_sizes():
    """37, from 32 bytes to 8 KiB."""
    size = 32
    while size <= 8192:
        yield size
        size += 16 if size < 256 else 64 if size < 1024 else 256 if size < 2048 else 1024


@pytest.mark.parametrize("held", [40, 80, 160, 640, 1300])  # KiB in each class
@pytest.mark.parametrize("shares", [{2: 0.5, 3: 0.5}, {2: 0.6, 3: 0.1, 4: 0.1, 5: 0.1, 6: 0.1}])
def test_errors_are_honest_where_each_class_has_few_samples(shares, held):
    """By chance all samples of a class may be one site's, which does not have the whole class then."""
    heap = Heap({size: mixed({site: int(held * 1024 * part / size) for site, part in shares.items()}) for size in class_sizes()})
    truth = heap.held()
    runs = 100
    off: list[float] = []
    for seed in range(runs):
        taken = heap.sampled(seed)
        lines = {line.key: line for line in estimate(taken)}
        assert sum(line.bytes for line in lines.values()) == taken.live_bytes
        assert sum(line.objects for line in lines.values()) == sum(each.live for each in taken.classes)
        off.append((lines[2].bytes - truth[2]) / lines[2].error)
    assert sum(abs(each) <= 2 for each in off) >= 0.87 * runs
    assert sum(abs(each) <= 1 for each in off) >= 0.53 * runs
    assert abs(sum(off) / runs) < 0.35  # of a standard error
    assert math.sqrt(sum(each * each for each in off) / runs) > 0.5  # nor are they told too large


def test_a_class_that_should_have_samples_but_has_none_is_nobodys():
    """Its samples were given up: what others hold says nothing about it."""
    taken = small([(1, 1)])
    taken.classes.append(SizeClass(512, 1 << 16, 99, 20_000, 0, 0, 0))
    lines = {line.key: line for line in estimate(taken)}
    assert (lines[1].bytes, lines[NOT_SAMPLED].bytes) == (64_000, 512 * 20_000)


def test_blocks_that_are_always_sampled_are_exact_among_few():
    taken = small([(1, 2)])
    taken.classes.append(SizeClass(65536, 1 << 16, 3, 3, 0, 0, 0))
    taken.samples += [Sample(at << 40, 65536, 65536, 1.0, site, 0, 0, False) for at, site in ((1, 2), (2, 2), (3, 3))]
    lines = {line.key: line for line in estimate(taken)}
    assert (lines[2].bytes, lines[2].error, lines[3].bytes, lines[3].error) == (131_072, 0, 65_536, 0)
    assert lines[1].bytes == 64_000 and lines[1].error > 0


def test_a_small_block_stands_for_no_more_than_there_are():
    taken = small([(1, 1)], live=100, size=16)
    taken.classes.append(SizeClass(8192, 1 << 16, 5, 40, 0, 0, 0))
    taken.samples += [Sample(at << 40, 8192, 8192, 8192 / RATE, 2, 0, 0, False) for at in (1, 2, 3)]
    lines = {line.key: line for line in estimate(taken)}
    assert lines[1].objects + lines[2].objects == 140
    assert lines[2].objects >= 40


def test_error_is_that_of_a_share():
    lines = {line.key: line for line in estimate(small([(1, 30), (2, 10)]))}
    assert (lines[1].bytes, lines[2].bytes) == (48_000, 16_000)
    expected = 64_000 * math.sqrt(0.75 * 0.25 / 40 * (1 - 64 / RATE))
    assert lines[1].error == pytest.approx(expected)
    assert lines[2].error == pytest.approx(expected)


def test_objects_asked_bytes_and_age():
    one, other = estimate(small([(1, 3), (2, 1)]))
    assert (one.objects, other.objects) == (750, 250)
    assert (one.asked, other.asked) == (36_000, 12_000)
    assert (one.age, other.age) == (10, 20)


def test_class_without_samples_is_a_line_if_no_other_small_one_has_any():
    taken = small([(1, 30)], live=30_000)
    taken.classes.append(SizeClass(32, 1 << 16, 1, 20, 0, 0, 0))
    taken.classes.append(SizeClass(0, 1 << 16, 1, 9, 0, 0, 0))  # malloc(0)
    lines = {line.key: line for line in estimate(taken)}
    assert (lines[NOT_SAMPLED].bytes, lines[NOT_SAMPLED].objects) == (640, 20)
    assert sum(line.bytes for line in lines.values()) == taken.live_bytes


def test_class_without_samples_is_divided_as_other_small_ones_are():
    taken = small([(1, 1)])
    taken.classes.append(SizeClass(32, 1 << 16, 1, 20, 0, 0, 0))
    (line,) = estimate(taken)
    assert (line.bytes, line.objects) == (64_640, 1020)
    assert 0 < line.error < line.bytes  # another site may have some of it


def test_large_blocks_that_are_certain_are_exact():
    taken = Snapshot(rate=RATE, large_blocks=6, large_bytes=(1 << 20) + 5 * (64 << 10))
    taken.samples = [
        Sample(0, 1 << 20, 1 << 20, 1.0, 1, 0, 0, False, True),
        Sample(1 << 30, 64 << 10, 64 << 10, 0.5, 2, 0, 0, False, True),
        Sample(2 << 30, 64 << 10, 64 << 10, 0.5, 3, 0, 0, False, True),
    ]
    lines = {line.key: line for line in estimate(taken)}
    assert (lines[1].bytes, lines[1].objects, lines[1].error) == (1 << 20, 1, 0)
    assert lines[2].bytes + lines[3].bytes == 5 * (64 << 10)
    assert lines[2].objects + lines[3].objects == 5
    assert lines[2].error > 0


@pytest.mark.parametrize("seed", range(5))
def test_large_blocks_may_be_as_large_as_a_class(seed):
    taken = Heap({65536: [2] * 400}, [(3, 65536)] * 400).sampled(seed)
    for each in (taken, snapshots.of_bytes(snapshots.text_of(taken).encode(), "heap")):
        lines = {line.key: line for line in estimate(each)}
        assert lines[2].bytes == lines[3].bytes == 400 << 16
        assert NOT_SAMPLED not in lines


def test_large_blocks_that_came_after_the_count_do_not_break_the_sum():
    taken = Snapshot(rate=RATE, large_blocks=1, large_bytes=1 << 20)
    taken.samples = [Sample(at << 30, 1 << 20, 1 << 20, 1.0, at, 0, 0, False, True) for at in (1, 2)]
    assert [line.bytes for line in estimate(taken)] == [1 << 19, 1 << 19]


def test_blocks_of_4_gib_and_more_have_no_waste():
    taken = Snapshot(rate=RATE, large_blocks=1, large_bytes=5 << 30)
    taken.samples = [Sample(0, 5 << 30, (1 << 32) - 1, 1.0, 1, 0, 0, False, True)]
    assert estimate(taken)[0].asked == 5 << 30


def test_cautious_estimates_do_not_take_one_sample_for_a_class():
    (line,) = estimate(small([(1, 1)]), cautious=True)
    assert (line.bytes, line.error) == (RATE, pytest.approx(RATE, rel=0.01))
    (line,) = estimate(small([(1, 30)]), cautious=True)
    assert line.bytes == 64_000
    assert 0 < line.error < 64_000 / 30


def test_apportioned_parts_sum_and_are_near():
    weights = {key: (key * 37 % 11 + 1) / 7 for key in range(50)}
    for total in (0, 1, 49, 1000, 10**15 + 1):
        parts = apportion(total, weights)
        assert sum(parts.values()) == total
        for key, part in parts.items():
            assert abs(part - total * weights[key] / sum(weights.values())) <= max(1, total * 1e-4)


# ---- The command ----


@pytest.fixture
def file(tmp_path):
    heap = Heap(SHARES.owners, [(6, 3 << 20)])
    path = tmp_path / "heap"
    path.write_text(text_of(heap.sampled(3)))
    return str(path)


def test_table_begins_with_the_whole_and_how_well_it_is_known(hakmem, file):
    result = hakmem("profile", file)
    assert result.returncode == 0
    text = words(result.stdout)
    assert "process 77, 2027-01-15 08:00:00 UTC" in text
    assert "live 17.0 MiB, including 3.0 MiB in 1 large blocks" in text
    assert "live blocks sampled, one for each 128.0 KiB" in text
    assert "of 40 samples recognised by their innermost calls, at most 1 have the wrong call stack" in text
    assert "live ± share objects age allocated by" in text
    assert re.search(r"3\.0 MiB 0 B 17\.7 % 1 5\.0 s 0x", text)
    assert "addresses have no name" in result.stderr  # said, not guessed


@pytest.mark.parametrize("command", ["profile", "resident"])
def test_a_snapshot_is_read_from_a_pipe_too(hakmem, file, command):
    piped = hakmem(command, "--json", "/dev/stdin", input=Path(file).read_text())
    assert (piped.returncode, piped.stdout) == (0, hakmem(command, "--json", str(file)).stdout), piped.stderr


def test_a_pipe_of_something_else_is_told(hakmem):
    core = "\x7fELF\x02\x01" + 10 * "\0" + "\4\0"
    for text, code, said in (("nonsense", 2, "not a snapshot of hakmem"), (core, 1, "a pipe does not allow")):
        result = hakmem("profile", "/dev/stdin", input=text)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (code, "", 1)
        assert result.stderr.startswith("hakmem: /dev/stdin: ") and said in result.stderr


def test_of_few_checked_stacks_nothing_is_said(hakmem, tmp_path):
    taken = Heap(SHARES.owners).sampled(3)
    file = tmp_path / "heap"
    for checked, said in ((9, False), (10, True)):
        taken.checked = checked
        file.write_text(text_of(taken))
        assert ("innermost calls" in hakmem("profile", str(file)).stdout) == said
        assert json.loads(hakmem("profile", "--json", str(file)).stdout)["site_confidence"] == 1 - 1 / checked


def test_the_process_is_named(hakmem, tmp_path):
    program = compiled(tmp_path, KNOWN)
    file = tmp_path / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0") as process:
        shown = hakmem("profile", str(process.pid)).stdout
    assert shown.startswith(f"known, process {process.pid}, ")
    assert hakmem("profile", str(file)).stdout.startswith(f"known, process {process.pid}, ")


def test_only_blocks_that_are_always_sampled_have_no_error(hakmem, tmp_path):
    heap = Heap({64: mixed({2: 100_000}), 2048: mixed({3: 2_000})}, [(6, 3 << 20)])
    lines = {line.key: line for line in estimate(heap.sampled(1))}
    assert lines[6].error == 0
    assert 0 < lines[2].error < lines[2].bytes / 10 and 0 < lines[3].error < lines[3].bytes / 10


def test_top_and_depth_bound_the_table(hakmem, file):
    full, short = hakmem("profile", file).stdout, hakmem("profile", file, "--top", "1", "--depth", "1").stdout
    assert full.count("MiB") > short.count("MiB")
    assert short.count("0x") == 1
    assert re.search(r"\d more hold", short)


def test_json_has_everything(hakmem, file):
    result = json.loads(hakmem("profile", file, "--json").stdout)
    assert sum(line["live"] for line in result["lines"]) == result["live"]
    assert result["sample_bytes"] == RATE
    assert {"live", "error", "objects", "asked", "samples", "age", "frames", "wanted_by"} == set(result["lines"][0])
    assert all(len(line["frames"]) == 2 for line in result["lines"])


def test_an_error_that_is_not_known_is_none_in_json(hakmem, tmp_path):
    """0 would say that it is certain."""
    heap = Heap(SHARES.owners)
    taken = heap.snapshot([])
    file = tmp_path / "heap"
    file.write_text(text_of(taken))
    (line,) = json.loads(hakmem("profile", "--json", str(file)).stdout)["lines"]
    assert line["frames"] == [{"function": NOT_SAMPLED}]
    assert line["live"] > 0 and line["error"] is None


def test_lines_by_tag_and_by_function(hakmem, file):
    by_tag = json.loads(hakmem("profile", file, "--by", "tag", "--json").stdout)
    assert {line["frames"][0]["function"] for line in by_tag["lines"]} == {"tag 1", "tag 2", "no tag"}
    by_function = json.loads(hakmem("profile", file, "--by", "function", "--json").stdout)
    for result in (by_tag, by_function):
        assert sum(line["live"] for line in result["lines"]) == result["live"]
    assert len(by_function["lines"]) == 5


def test_snapshot_without_samples_says_so(hakmem, tmp_path):
    heap = Heap(SHARES.owners)
    taken = heap.snapshot([])
    taken.rate = 0
    file = tmp_path / "heap"
    file.write_text(text_of(taken))
    result = hakmem("profile", str(file))
    assert result.returncode == 0
    assert "no blocks were sampled" in result.stdout
    assert "(not sampled)" in result.stdout

"""Snapshots, as hakmem writes them."""

from __future__ import annotations

import random
import time

import pytest
from heap import Heap, mixed, of_code, pin, text_of

from hakmem import snapshots
from hakmem.errors import Failure

SMALL = Heap({64: mixed({2: 3000, 3: 1000}, free=50), 4096: mixed({2: 100})}, [(4, 50 << 10), (5, 3 << 20)])


def a_snapshot():
    taken = pin(SMALL.sampled(1), SMALL, every=2)
    taken.file = ""
    taken.mappings = [
        of_code("/opt/a program", "ab" * 20),
        of_code("", start=1 << 40),
        of_code("[vdso]", start=2 << 40),
    ]
    return taken


def test_what_was_written_is_read():
    taken = a_snapshot()
    read = snapshots.parse(text_of(taken))
    assert read == taken
    assert read.mappings[0].name == "a program"
    assert read.live_bytes == 4000 * 64 + 100 * 4096 + (50 << 10) + (3 << 20)
    assert read.confidence == 1 - 1 / 40
    assert read.stack(3) == [read.sites[3][1], read.sites[1][1]]
    assert 0 < sum(stratum.tracked for stratum in read.strata) == len(read.tracked) < 5
    assert any(sample.chance == 1 for sample in read.samples)
    assert any(sample.weight == pytest.approx(read.rate) for sample in read.samples)


def test_kinds_and_words_of_later_versions_are_left_out():
    lines = text_of(a_snapshot()).splitlines()
    later = [f"{line} 17" if line.split()[0] not in ("mapping", "end") else line for line in lines]
    later[3:3] = ["weather 1 fair", ""]
    assert snapshots.parse("\n".join(later)) == a_snapshot()


def test_cut_file_is_one_line(hakmem, tmp_path):
    file = tmp_path / "cut"
    file.write_text(text_of(a_snapshot()).removesuffix("end\n"))
    result = hakmem("profile", str(file))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"hakmem: {file}: the snapshot is cut short")
    assert result.stderr.count("\n") == 1


KINDS = sorted({line.split()[0] for line in text_of(a_snapshot()).splitlines()} - {"hakmem-snapshot", "mapping", "end"})


@pytest.mark.parametrize("kind", KINDS)
def test_line_that_is_cut_short_is_told(kind):
    """Not of a mapping, whose last word may be missing."""
    whole = text_of(a_snapshot()).splitlines()
    at = next(number for number, line in enumerate(whole) if line.split()[0] == kind)
    whole[at] = whole[at].rpartition(" ")[0]
    with pytest.raises(Failure, match=f"heap: line {at + 1} can't be read: {kind}"):
        snapshots.parse("\n".join(whole), "heap")


@pytest.mark.parametrize(
    ("kind", "word"), [("time", 1), ("class", 4), ("large", 2), ("sample", 1), ("sample", 6), ("tracked", 5), ("site", 3)]
)
def test_figure_that_none_can_be_is_told(kind, word):
    whole = text_of(a_snapshot()).splitlines()
    at = next(number for number, line in enumerate(whole) if line.split()[0] == kind)
    words = whole[at].split()
    words[word] = "9" * 26
    whole[at] = " ".join(words)
    with pytest.raises(Failure, match=f"heap: line {at + 1} can't be read"):
        snapshots.parse("\n".join(whole), "heap")


def test_figures_that_sum_to_more_than_there_is_are_told():
    taken = a_snapshot()
    taken.large_bytes = (1 << 63) - 1
    with pytest.raises(Failure, match="heap: it can't be true"):
        snapshots.parse(text_of(taken), "heap")


@pytest.mark.parametrize("text", ["", "nonsense\nend\n", '{"a": 1}'])
def test_file_that_is_no_snapshot_is_told(text):
    with pytest.raises(Failure, match="heap: not a snapshot of hakmem"):
        snapshots.parse(text, "heap")


@pytest.mark.parametrize(
    "line",
    [
        "sample 0x10 16 16",
        "sample 0x10 0 0 0 0 0 0 0 0",
        "class 16 x 1 1 1 1 1",
        "site 1 0 zz",
        "tracked 0x1 0 0 0 0 0x0",
        "survivor 1 1 1 0",
    ],
)
def test_broken_line_is_told_with_its_number(line):
    with pytest.raises(Failure, match="heap: line 2 can't be read"):
        snapshots.parse(f"hakmem-snapshot 1\n{line}\nend\n", "heap")


def test_block_that_came_while_the_snapshot_was_written_has_no_age():
    read = snapshots.parse("hakmem-snapshot 1\nsample 0x10 16 16 9 0 0 4294967295 0 0\nend\n")
    assert read.samples[0].age == 0


def test_loop_of_sites_ends():
    read = snapshots.parse("hakmem-snapshot 1\nsite 1 2 0x10\nsite 2 1 0x20\nend\n")
    assert len(read.stack(1)) == 1000


def test_big_snapshots_are_read_in_less_than_a_second():
    draw = random.Random(1).randrange
    lines = ["hakmem-snapshot 1"]
    lines += [f"sample {hex(i << 16)} 64 60 2097152 {draw(1, 100_000)} 0 {i} 0 0" for i in range(100_000)]
    lines += [f"site {i} {draw(i)} {hex(draw(1 << 40))}" for i in range(1, 100_001)]
    text = "\n".join([*lines, "end\n"])
    start = time.process_time()
    read = snapshots.parse(text)
    assert time.process_time() - start < 1.5  # 0.4 s here
    assert len(read.samples) == len(read.sites) == 100_000

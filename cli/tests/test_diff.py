"""hakmem diff: what changed beyond chance, and nothing else."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from heap import RATE, Heap, mixed, of_code, text_of

from hakmem import pprof_files
from hakmem.diff import Change, adjust, coin_chance, compare, is_panel, normal_chance
from hakmem.snapshots import Sample, SizeClass
from hakmem.symbols import CLOSED, Symbols

# As if Ctrl-C were pressed while the command's modules are loaded.
INTERRUPTED = """
import sys
from hakmem import app
def interrupted(*_):
    raise KeyboardInterrupt
app._Commands.get_command = interrupted
app.main(["diff", "a", "b"])
"""

PAIRS = 200
# So many of 200 equal pairs may raise an alarm, if 5 % do: the binomial distribution's 99.9 %.
MOST_ALARMS = 21

# 40 sites of 32 KiB to 2 MiB.
BLOCKS = {site: 40 * site for site in range(2, 42)}
MANY = {256: mixed(BLOCKS, free=4_000), 2048: mixed({site: count // 8 for site, count in BLOCKS.items()}, free=500)}

# Site 41 holds 8 MiB more.
GROWN = dict(MANY) | {2048: mixed({site: count // 8 * (1 + 20 * (site == 41)) for site, count in BLOCKS.items()})}


def test_an_interrupt_is_no_answer():
    result = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert result.returncode == -signal.SIGINT, (result.returncode, result.stderr)


def churned(owners: dict[int, list[int]], seed: int, part: float = 0.3) -> dict[int, list[int]]:
    """The same blocks of every site, many of them elsewhere."""
    draw = random.Random(seed)
    found = {}
    for size, sites in owners.items():
        sites = list(sites)
        places = draw.sample(range(len(sites)), int(part * len(sites)))
        moved = [sites[place] for place in places]
        draw.shuffle(moved)
        for place, site in zip(places, moved):
            sites[place] = site
        found[size] = sites
    return found


def test_equal_snapshots_of_one_process_seldom_raise_an_alarm():
    before = Heap(MANY)
    afters = [Heap(churned(MANY, seed)) for seed in range(10)]
    alarms = changed = 0
    for seed in range(PAIRS):
        marks = before.marks(seed)
        difference = compare(before.snapshot(marks), afters[seed % 10].snapshot(marks))
        assert difference.panel
        changed += sum(change.error > 0 for change in difference.changes)
        alarms += bool(difference.told)
    assert changed > 10 * PAIRS  # there was something to be misled by
    assert alarms <= MOST_ALARMS


def test_equal_snapshots_of_two_processes_seldom_raise_an_alarm():
    heap = Heap(MANY)
    alarms = 0
    for seed in range(PAIRS):
        difference = compare(heap.sampled(seed), heap.sampled(seed + PAIRS, process=78))
        assert not difference.panel
        alarms += bool(difference.told)
    assert alarms <= MOST_ALARMS


def test_growth_by_a_tenth_of_100_mib_is_found():
    sites = mixed({2: 25_600, 3: 10_000, 4: 4_000}, free=6_000)
    more = list(sites)
    free = [place for place, site in enumerate(more) if not site]
    for place in random.Random(5).sample(free, 2_560):
        more[place] = 2
    before, after = Heap({4096: sites}), Heap(churned({4096: more}, 6, 0.05))
    found = 0
    runs = 40
    for seed in range(runs):
        marks = before.marks(seed)
        told = compare(before.snapshot(marks), after.snapshot(marks)).told
        found += 2 in [change.key for change in told]
        for change in told:
            if change.key == 2:
                assert abs(change.change - (10 << 20)) < 4.5 * change.error
    assert found >= 0.95 * runs


def test_growth_between_two_processes_is_found():
    told = compare(Heap(MANY).sampled(1), Heap(GROWN).sampled(2, process=78)).told
    assert [change.frames[0][0] for change in told] == ["0x40028f"]  # that of site 41


def test_growth_of_large_blocks_as_large_as_a_class_is_found():
    marks = Heap({65536: [2] * 400}).marks(1)
    before = Heap({65536: [2] * 400}, [(3, 65536)] * 100).snapshot(marks)
    after = Heap({65536: [2] * 400}, [(3, 65536)] * 900).snapshot(marks)
    assert [change.key for change in compare(before, after).told] == [3]
    told = compare(before, replace(after, process=78)).told
    assert len(told) == 1 and abs(told[0].change - (800 << 16)) < 4 * told[0].error


def test_what_did_not_change_adds_no_error():
    marks = Heap(MANY).marks(1)
    one, other = Heap(MANY).snapshot(marks), Heap(MANY).snapshot(marks)
    assert all((change.change, change.error) == (0, 0) for change in compare(one, other).changes)
    assert any(change.error for change in compare(one, replace(other, process=78)).changes)


def test_large_blocks_that_are_certain_are_told_to_the_byte():
    marks = Heap(MANY).marks(1)
    one, other = Heap(MANY, [(3, 1 << 20)]).snapshot(marks), Heap(MANY, [(3, (1 << 20) + 4096)]).snapshot(marks)
    (change,) = compare(one, other).told
    assert (change.key, change.change, change.error) == (3, 4096, 0)


@pytest.mark.parametrize(("count", "told"), [(3, False), (30, True)])
def test_new_site_is_told_if_it_has_enough_samples(count, told):
    marks = Heap(MANY).marks(1)
    one, other = Heap(MANY).snapshot(marks), Heap(MANY).snapshot(marks)
    other.samples += [Sample(number << 16, 64, 64, 64 / RATE, 41, 0, 0, False) for number in range(count)]
    other.classes.append(SizeClass(64, 1 << 16, 1, count * RATE // 64, 0, 0, 0))
    one.samples = [sample for sample in one.samples if sample.site != 41]
    other.samples = [sample for sample in other.samples if sample.site != 41 or sample.size == 64]
    for process in (77, 78):
        difference = compare(one, replace(other, process=process))
        assert bool(difference.told) == told
        change = next(change for change in difference.changes if change.frames[0][0] == "0x40028f")
        assert change.change == pytest.approx(count * RATE, rel=0.01)
        assert change.chance == pytest.approx(coin_chance(count, 0))


def test_one_process_is_known_by_its_sites():
    one, other = Heap(MANY).sampled(1), Heap(MANY).sampled(2)
    other.sites[99] = (1, 0x1234)  # found since
    assert is_panel(one, other)
    assert not is_panel(one, replace(other, process=78))
    assert not is_panel(one, replace(other, sites=other.sites | {1: (0, 0x999)}))  # the number was given again
    assert not is_panel(one, replace(other, sites={}))


def test_the_table_says_why_the_change_is_not_the_difference(hakmem, tmp_path):
    files = [tmp_path / name for name in ("before", "after", "other")]
    for file, heap, process in zip(files, (MANY, GROWN, GROWN), (77, 77, 78)):
        file.write_text(text_of(Heap(heap).sampled(1, process=process)))
    said = [" ".join(hakmem("diff", str(files[0]), str(each)).stdout.split()) for each in files[1:]]
    assert ["need not equal it" in each for each in said] == [True, False]


def test_the_first_processes_of_two_namespaces_are_not_one():
    """A static program's code is always at the same address."""
    program = of_code("/bin/server", "ab" * 20)
    places = [of_code("[vdso]", start=start, size=0x2000) for start in (0x7FFC_1234_5000, 0x7FFD_4321_0000)]
    one, other = (replace(Heap(MANY).sampled(seed, process=1), mappings=[program, place]) for seed, place in enumerate(places))
    assert not is_panel(one, other)
    assert not compare(one, other).panel
    assert is_panel(one, replace(other, mappings=[program, places[0]]))
    assert is_panel(one, replace(other, mappings=[]))


def test_sites_that_one_snapshot_alone_has_and_closed_libraries_are_of_one_process_too():
    one, other = Heap(MANY | {64: [50] * 20_000}).sampled(1), Heap(MANY | {64: [51] * 20_000}).sampled(1)
    del other.sites[50]  # as a black box tells of those alone that blocks lead to
    parent, address = other.sites[41]
    other.sites[41] = (parent, CLOSED | address)
    difference = compare(one, other)
    assert difference.panel
    told = {change.key: change.frames[0][0] for change in difference.told}
    assert told == {50: "0x40031f", 51: "0x40032f"}


def test_coin_and_normal_chances():
    assert coin_chance(5, 0) == pytest.approx(2 / 32)
    assert coin_chance(0, 3, 0.25) == pytest.approx(2 * 0.75**3)
    assert coin_chance(3, 3) == coin_chance(0, 0) == 1
    assert coin_chance(600, 500) == pytest.approx(normal_chance(100, math.sqrt(1100)))
    assert normal_chance(1.959964, 1) == pytest.approx(0.05, abs=1e-6)
    assert (normal_chance(0, 0), normal_chance(1, 0)) == (1, 0)


def test_chances_of_many_tosses_of_an_uneven_coin():
    assert coin_chance(0, 2000, 1 / 101) == pytest.approx(2 * (100 / 101) ** 2000)
    assert (coin_chance(0, 3, 1.0), coin_chance(3, 0, 1.0), coin_chance(3, 0, 0.0)) == (0, 1, 0)
    poisson = 1 - sum(math.exp(-5) * 5**count / math.factorial(count) for count in range(16))
    assert coin_chance(16, 50_000 - 16, 1e-4) == pytest.approx(2 * poisson, rel=0.01)


def test_benjamini_and_hochberg():
    chances = [0.01, 0.04, 0.03, 0.005, 0.9]
    changes = [Change(None, 0, 0, 0, 0, chance) for chance in chances]
    adjust(changes)
    assert [round(change.adjusted, 4) for change in changes] == [0.025, 0.05, 0.05, 0.025, 0.9]


# ---- Files of pprof ----


def test_profiles_of_pprof_seldom_raise_an_alarm_and_find_growth():
    def of_pprof(owners, seed):
        taken = Heap(owners).sampled(seed)
        return pprof_files.decode(pprof_files.encode(taken, Symbols(taken)), "x")

    owners = MANY | {16: [7] * 4}  # too few for a sample, which is no site
    sides = [of_pprof(owners, seed) for seed in range(40)]
    alarms = sum(bool(compare(sides[2 * pair], sides[2 * pair + 1]).told) for pair in range(20))
    assert alarms <= 4
    assert not any("(not sampled)" in change.frames[0] for change in compare(*sides[:2]).changes)
    (change,) = compare(sides[0], of_pprof(GROWN, 99)).told
    assert change.frames[0][0] == "0x40028f"


# ---- The command ----


@pytest.fixture
def files(tmp_path):
    """Three snapshots of one process: the second equals the first, the third has grown."""
    marks = Heap(MANY).marks(1)
    grown = Heap(MANY, [(41, 8 << 20)])
    for name, heap in (("a", Heap(MANY)), ("b", Heap(churned(MANY, 1, 0.05))), ("c", grown)):
        (tmp_path / name).write_text(text_of(heap.snapshot(marks)))
    return tmp_path


def test_exit_code_tells_of_changes_beyond_chance_alone(hakmem, files):
    same, grown = (hakmem("diff", str(files / "a"), str(files / name)) for name in "bc")
    assert (same.returncode, grown.returncode) == (0, 1)
    assert "no site changed beyond chance" in same.stdout
    assert "+8.0 MiB" in grown.stdout and "two snapshots of one process" in grown.stdout
    assert grown.stdout.count("0x") == 2  # one site, and main
    assert hakmem("diff", "--all", str(files / "a"), str(files / "c")).stdout.count("0x") > 2


def test_json_of_a_difference(hakmem, files):
    result = json.loads(hakmem("diff", "--json", str(files / "a"), str(files / "c")).stdout)
    assert result["changed"] == 1 and result["one_process"]
    assert result["sites"][0]["change"] == 8 << 20


def test_snapshot_and_profile_of_pprof_go_together(hakmem, files):
    out = str(files / "a.pb.gz")
    assert hakmem("profile", str(files / "a"), "--pprof", out).returncode == 0
    assert hakmem("diff", out, str(files / "a")).returncode == 0
    assert hakmem("diff", out, str(files / "c")).returncode == 1


@pytest.mark.parametrize("text", ["", "nonsense", "hakmem-snapshot 1\n", "hakmem-snapshot 1\nend\n"])
def test_errors_are_no_changes(hakmem, files, text):
    (files / "bad").write_text(text)
    result = hakmem("diff", str(files / "a"), str(files / "bad"))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"hakmem: {files / 'bad'}: ")
    assert result.stderr.count("\n") == 1
    assert hakmem("diff", str(files / "a"), str(files / "none")).returncode == 2


@pytest.mark.parametrize("other", ["snapshot", "pprof"])
def test_what_has_no_stack_is_the_same_in_a_snapshot_and_in_pprof(other):
    snapshot = Heap(MANY).sampled(1)
    for sample in snapshot.samples[::2]:
        sample.site = 0
    profile = pprof_files.decode(pprof_files.encode(snapshot, Symbols(snapshot)), "heap.pb.gz")
    difference = compare(snapshot if other == "snapshot" else profile, profile)
    assert not difference.told
    (unknown,) = [change for change in difference.changes if change.key == ()]
    assert unknown.before == unknown.after > 0 and not unknown.frames

"""Which calls of a stack are shown, and that lines of a table tell one another apart."""

from __future__ import annotations

from heap import CODE, Heap, mixed, of_code
from rich.console import Console

from hakmem import diff, insight
from hakmem.calls import Calls, told_apart
from hakmem.symbols import Symbols

MAIN, FILL = ("main", "a.cpp:9"), ("fill", "a.cpp:5")
GROW, COPY, NEW, OTHER = ("std::grow", ""), ("std::copy", ""), ("operator new", ""), ("std::other", "")


def test_what_passes_memory_on_is_left_out():
    assert told_apart([Calls([NEW, FILL, MAIN], 1), Calls([NEW, MAIN], 1), Calls()]) == [[FILL, MAIN], [MAIN], []]


def test_stacks_that_would_look_alike_begin_where_they_differ():
    stacks = [
        Calls([NEW, GROW, OTHER, FILL, MAIN], 3),
        Calls([NEW, COPY, OTHER, FILL, MAIN], 3),
        Calls([NEW, COPY, FILL, MAIN], 2),
        Calls([NEW, COPY, MAIN], 2),
    ]
    assert told_apart(stacks) == [[GROW, OTHER, FILL, MAIN], [COPY, OTHER, FILL, MAIN], [COPY, FILL, MAIN], [MAIN]]


def test_stacks_that_differ_in_nothing_are_shown_as_usual():
    assert told_apart([Calls([NEW, FILL], 1)] * 2 + [Calls([FILL])]) == [[FILL]] * 3


def taken(blocks: dict[int, int], seed: int = 1):
    """Sites 2 and 3 are libc's, called from main."""
    found = Heap({64: mixed(blocks)}).sampled(seed)
    found.sites = {1: (0, CODE + 16), 2: (1, 2 * CODE + 32), 3: (1, 2 * CODE + 48), 4: (1, CODE + 64)}
    found.mappings = [of_code("/bin/program", size=CODE), of_code("/lib/libc.so.6", start=2 * CODE)]
    return found


def shown(table) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_a_table_has_no_two_lines_that_look_alike():
    found = taken({2: 30_000, 3: 30_000, 4: 30_000})
    rows, count = insight.rows(found, Symbols(found), insight.SITE)
    text = shown(insight.profile_table(found, rows, count, 4))
    assert "libc.so.6+0x1f" in text and "libc.so.6+0x2f" in text
    difference = diff.compare(taken({2: 3_000, 3: 3_000, 4: 100_000}), taken({2: 100_000, 3: 100_000, 4: 100_000}))
    text = shown(insight.difference_table(difference, 20, 4, False))
    assert "libc.so.6+0x1f" in text and "libc.so.6+0x2f" in text
    assert difference.told[0].frames == [("program+0xf", "")]


def test_json_has_whole_stacks_and_who_wanted_the_memory():
    found = taken({2: 30_000, 4: 30_000})
    rows, _ = insight.rows(found, Symbols(found), insight.SITE)
    lines = insight.profile_json(found, rows, None, [], [])["lines"]
    told = {tuple(frame["function"] for frame in line["frames"]): line["wanted_by"] for line in lines}
    assert told == {("libc.so.6+0x1f", "program+0xf"): 1, ("program+0x3f", "program+0xf"): 0}
    difference = diff.compare(taken({2: 3_000, 4: 30_000}), taken({2: 100_000, 4: 30_000}))
    (site,) = (each for each in insight.difference_json(difference)["sites"] if each["changed"])
    assert ([frame["function"] for frame in site["frames"]], site["wanted_by"]) == (["libc.so.6+0x1f", "program+0xf"], 1)

"""hakmem top: which processes are found, and the view of one on a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import HAKMEM
from heap import CODE, Heap, mixed, of_code, pin
from processes import LIBRARY, compiled, running, with_own
from rich.console import Console

from hakmem import outside, outside_events, resident, snapshots, top
from hakmem.memory import Process
from hakmem.request_commands import ARM_SECONDS
from hakmem.resident import Row, Table

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def held(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("held"), TESTS / "held.c")


@pytest.fixture(scope="module")
def churn(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("churn"), TESTS / "churn.c")


# ---- The list ----


def test_every_process_with_hakmem_is_listed_with_its_verdict(hakmem, held):
    with running(held, "leak") as leak, running(held, "stacks") as stacks, subprocess.Popen(["sleep", "60"]) as other:
        listed = json.loads(hakmem("top", "--json").stdout)
        shown = hakmem("top")
        other.kill()
    found = {each["process"]: each for each in listed}
    assert found[leak.pid]["verdict"]["kind"] == resident.PROGRAM
    assert found[stacks.pid]["verdict"]["kind"] == resident.OTHER
    assert other.pid not in found
    assert [each["resident"] for each in listed] == sorted((each["resident"] for each in listed), reverse=True)
    assert re.search(rf"{leak.pid}\s+[67]\d\.\d MiB\s+6\d\.\d MiB\s+held\s+the program holds it", shown.stdout)


def test_what_is_said_of_a_control_group_is_said_once():
    beside = "1.0 GiB of the 1.3 GiB of its control group are page cache, which the kernel drops when memory is needed"
    found = []
    for process in (77, 78):
        table = Table(process, [], 1 << 20, group_total=13 << 27, group_cache=1 << 30)
        table.verdict = resident.Verdict(resident.PROGRAM, f"the program holds it; {beside}", beside)
        found.append(top.Found(process, "name", table, taken({2: 1000})))
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(top.list_table(found))
    text = " ".join(console.export_text().split())
    assert text.count("page cache") == 1 and text.endswith(f"Process 77: {beside}.") and text.count("the program holds it") == 2


def test_of_others_only_root_lists_all(monkeypatch):
    mine = top.processes(os.getuid() + 1 if os.getuid() else 12345)
    assert os.getppid() not in mine
    assert os.getppid() in top.processes(os.getuid())
    assert os.getpid() not in top.processes(os.getuid())


def test_what_may_not_be_read_is_listed_as_such(held, monkeypatch):
    with running(held, "leak") as process:
        monkeypatch.setattr(top, "processes", lambda user: [process.pid, os.getppid()])
        monkeypatch.setattr("hakmem.memory.os.open", lambda *_: (_ for _ in ()).throw(PermissionError()))
        (found,) = top.all_found(os.getuid())
    assert found.table is None and "may not be read" in found.problem


# ---- One process ----


class Screen:
    """A terminal, and what a program has written to it."""

    def __init__(self, command: list[str], folder: Path, rows: int = 60, columns: int = 150, **variables: str) -> None:
        self.terminal, inner = pty.openpty()
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        self.before = termios.tcgetattr(inner)
        self.inner = inner
        self.text, self.written = "", b""
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"} | variables
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in (*ENDING, signal.SIGINT)],  # as a shell would
        )

    def wait_for(self, pattern: str, within: float = 60) -> None:
        self.wait_until(lambda: re.search(pattern, self.text, re.S), within)

    def wait_until(self, seen: Callable[[], object], within: float = 60) -> None:
        end = time.monotonic() + within
        while not seen():
            assert time.monotonic() < end, self.text
            if select.select([self.terminal], [], [], 0.2)[0]:
                self.written += os.read(self.terminal, 1 << 16)  # which may end in the midst of a character
                self.text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.written.decode(errors="ignore"))

    def as_it_was(self) -> bool:
        """The cursor is there, and the usual screen with what was on it before."""
        ends = (b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h")
        return all(self.written.rfind(begun) < self.written.rfind(ended) for begun, ended in ends)

    def press(self, key: str) -> None:
        self.text, self.written = "", b""
        os.write(self.terminal, key.encode())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)
        os.close(self.inner)


ENDING = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)


@pytest.fixture
def screen(held, tmp_path):
    """Without the keeper, which would trim the idle heap between two readings that are compared."""
    with running(held, "pinned", HAKMEM_KEEPER="0") as process:
        shown = Screen([HAKMEM, "top", str(process.pid), "--seconds", "0.3"], tmp_path)
        yield shown, process
        shown.end()


def test_a_process_is_watched_until_q(screen, tmp_path):
    shown, process = screen
    shown.wait_for(r"held, process \d+: fragmentation.*resident set.*sorted by live.*fill.*q: quit")
    shown.press("g")
    shown.wait_for("sorted by growth")
    shown.press("s")
    shown.wait_for(r"saved heap\.\d+")
    (file,) = tmp_path.glob("heap.*")
    shown.press("q")
    assert shown.process.wait(30) == 0
    assert termios.tcgetattr(shown.inner) == shown.before
    saved, seen = snapshots.read(str(file)), outside.read(Process(process.pid))
    assert (saved.classes, saved.sites, saved.mappings) == (seen.classes, seen.sites, seen.mappings)
    assert [each.address for each in saved.samples] == [each.address for each in seen.samples]


def test_p_sorts_by_what_is_kept(held, tmp_path):
    with running(held, "pinned", HAKMEM_TRACK="8") as process:
        shown = Screen([HAKMEM, "top", str(process.pid), "--seconds", "600"], tmp_path)
        shown.wait_for(r"sorted by live.*fill.*q: quit")
        shown.press("p")  # read at once, not with the next look
        shown.wait_for(
            r"pinned [56]\d\.\d MiB: free.*[\d,]+ of [\d,]+ slabs tracked.*"
            r"sole.*sorted by pinned.*[56]\d\.\d MiB.*fill.*q: quit"
        )
        shown.press("s")
        shown.wait_for(r"saved heap\.\d+")
        shown.end()
    (file,) = tmp_path.glob("heap.*")
    assert snapshots.read(str(file)).tracked


def test_a_arms_the_process_and_disarms_it(churn, tmp_path):
    with running(churn) as process:
        reader = outside.Reader(Process(process.pid))
        armed_until = lambda: reader.names.number(reader.names.place(outside_events.ARMED))  # noqa: E731
        shown = Screen([HAKMEM, "top", str(process.pid), "--seconds", "0.3"], tmp_path)
        shown.wait_for("q: quit")
        assert "armed: counting" not in shown.text and armed_until() == 0
        shown.press("e")
        shown.wait_for("nothing was counted: the process is not armed")
        shown.press("a")
        shown.wait_for(
            r"allocated while the process was armed.*sorted by allocated.*often.*armed: counting allocations, [56]\d s left"
        )
        left = armed_until() - Process(process.pid).now_ms()
        assert 0 < left <= 1000 * ARM_SECONDS
        shown.press("a")
        shown.wait_for("no longer counting")
        assert armed_until() == 0
        shown.press("l")
        shown.wait_for("sorted by live.*q: quit")
        assert "armed: counting" not in shown.text
        shown.end()


def test_a_does_not_end_what_the_option_asks_for(churn, tmp_path):
    with running(churn, HAKMEM_EVENTS="1") as process:
        shown = Screen([HAKMEM, "top", str(process.pid), "--seconds", "600"], tmp_path)
        shown.wait_for("armed: counting allocations, permanently")
        shown.press("a")
        shown.wait_for("already counting, permanently .HAKMEM_EVENTS.")
        shown.end()


def test_all_that_matters_is_on_a_usual_terminal(held, tmp_path):
    with running(held, "pinned") as process:
        shown = Screen([HAKMEM, "top", str(process.pid), "--seconds", "600"], tmp_path, rows=24, columns=80)
        shown.wait_for(r"held, process.*resident set.*sorted by live.*fill.*q: quit")
        shown.press("s")
        shown.wait_for(r"fill.*saved heap\.\d+.*q: quit")
        shown.end()


def test_the_view_ends_with_the_process(screen):
    shown, process = screen
    shown.wait_for("q: quit")
    process.kill()
    process.wait()
    assert shown.process.wait(30) == 0


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_leaves_the_terminal_as_it_was(screen, number):
    shown, _ = screen
    shown.wait_for("q: quit")
    assert not shown.as_it_was()
    shown.process.send_signal(number)
    assert shown.process.wait(30) == -number
    shown.wait_until(shown.as_it_was)
    assert termios.tcgetattr(shown.inner) == shown.before


def test_ctrl_c_ends_the_view_as_q_does(screen):
    shown, _ = screen
    shown.wait_for("q: quit")
    shown.process.send_signal(signal.SIGINT)
    assert shown.process.wait(30) == 0
    shown.wait_until(shown.as_it_was)
    assert termios.tcgetattr(shown.inner) == shown.before


def test_a_signal_that_is_ignored_is_ignored(held, tmp_path):
    with running(held, "pinned") as process:
        command = f'trap "" HUP; exec {HAKMEM} top {process.pid} --seconds 0.3'
        shown = Screen(["sh", "-c", command], tmp_path)
        shown.wait_for("q: quit")
        shown.process.send_signal(signal.SIGHUP)
        shown.press("g")
        shown.wait_for("sorted by growth")
        shown.press("q")
        assert shown.process.wait(30) == 0
        shown.end()


def test_a_terminal_of_few_characters(held, tmp_path):
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    with running(held, "pinned") as process:
        shown = Screen([HAKMEM, "top", str(process.pid), "--seconds", "0.3"], tmp_path, **plain)
        shown.wait_for(r"live[\s|]+\?[\s|]+last \d.*q: quit")
        os.write(shown.terminal, b"q")
        assert shown.process.wait(30) == 0
        shown.wait_until(shown.as_it_was)
        shown.end()


def test_a_terminal_without_a_screen_to_clear(held, tmp_path):
    with running(held, "pinned") as process:
        shown = Screen([HAKMEM, "top", str(process.pid)], tmp_path, TERM="dumb")
        shown.wait_for("can clear its screen; elsewhere, use hakmem resident PID")
        assert shown.process.wait(30) == 2
        shown.end()


def test_not_on_a_terminal(hakmem):
    result = hakmem("top", "1")
    assert result.returncode == 2 and "hakmem resident PID" in result.stderr


def text_of(view: top.View) -> str:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(view.render())
    return console.export_text()


def screen_of(view: top.View, height: int) -> list[str]:
    """The lines that a terminal of 80 columns shows."""
    console = Console(width=80, height=height, record=True, file=io.StringIO())
    console.print(view.render(console))
    return console.export_text().splitlines()


def taken(blocks: dict[int, int]) -> snapshots.Snapshot:
    found = Heap({64: mixed(blocks)}).sampled(3)
    found.mappings = [of_code("/nowhere/program", start=CODE)]
    return found


def test_sites_are_sorted_by_what_they_hold_and_by_growth():
    table = Table(77, [Row("asked", "live", resident.PROGRAM, 1 << 20, 1 << 20)], 1 << 20)
    view = top.View(77, found=top.Found(77, "name", table, taken({2: 60_000, 3: 30_000, 4: 10_000})))
    first = text_of(view)
    places = [first.index(f"program+{16 * site - 1:#x}") for site in (2, 3, 4)]
    assert places == sorted(places)
    view.found.taken = taken({2: 60_000, 3: 30_000, 4: 28_000})
    assert view.key("g")
    grown = text_of(view)
    assert grown.index("program+0x3f") < grown.index("program+0x2f")
    assert re.search(r"\+1?\d{3}\.\d KiB\s+program\+0x3f|\+1\.\d MiB\s+program\+0x3f", grown)
    assert view.key("n") and view.by == top.NAME
    assert not view.key("q")


def on_a_low_terminal() -> top.View:
    """Who holds the memory, below more rows than there is room for."""
    part = "a part of it " * 4
    rows = [Row(f"row{number}", f"{number}: {part}", resident.PROGRAM, (10 - number) << 20, 10 << 20) for number in range(4)]
    rows += [Row(f"little{number}", f"little {number}", resident.OTHER, 100 << 10) for number in range(10)]
    table = Table(77, rows, 41 << 20, group_total=4 << 30, group_cache=3 << 30, group_limit=8 << 30)
    table.verdict = resident.Verdict(resident.PROGRAM, "the program holds it, as a verdict of three lines says at length; " * 3)
    heap = Heap({64: mixed({2: 60_000, 3: 30_000, 4: 10_000, 5: 9_000, 6: 9_000, 7: 9_000, 8: 9_000}, free=9000)})
    found = pin(heap.sampled(3), heap, every=2)
    found.mappings = [of_code("/nowhere/program", start=CODE)]
    return top.View(77, found=top.Found(77, "name", table, found), said="saved a file")


@pytest.mark.parametrize("key", ["l", "g", "p"])
def test_a_low_terminal_shows_who_holds_it_and_the_keys(key):
    view = on_a_low_terminal()
    view.key(key)
    lines = screen_of(view, 24)
    assert len(lines) <= 24
    assert sum("program+0x" in line for line in lines) >= 5
    assert lines[0].startswith("name, process 77: the program holds it") and any("saved a file" in line for line in lines)
    assert "q: quit" in lines[-1]
    assert any("resident set" in line for line in lines)
    assert not any("little" in line or "control group" in line or "Counted:" in line for line in lines)
    assert any("0: a part of it" in line for line in lines) == (key != "p")  # what it takes to tell who keeps pages leaves no room


def test_what_is_left_of_a_terminal_shows_more_who_hold_it():
    view = on_a_low_terminal()
    count = {height: sum("program+0x" in line for line in screen_of(view, height)) for height in (24, 31, 90)}
    assert 5 <= count[24] < count[31] == count[90] == 7
    assert "its control group" in "\n".join(screen_of(view, 90))


def test_a_long_name_takes_one_line_of_a_low_terminal(monkeypatch):
    monkeypatch.setattr("hakmem.symbols.Frame.name", property(lambda frame: f"{frame.address:#x} " + "f" * 300))
    lines = screen_of(on_a_low_terminal(), 24)
    assert len(lines) <= 24 and "q: quit" in lines[-1]


def test_what_could_not_be_told_is_said_below_the_table():
    table = Table(77, [Row("asked", "live", resident.PROGRAM, 1 << 20, 1 << 20)], 1 << 20)
    view = top.View(77, found=top.Found(77, "name", table, taken({2: 60_000, 3: 30_000})))
    assert "/nowhere/program: it can't be opened: No such file or directory\n" in re.sub(r" +\n", "\n", text_of(view))
    view.found.taken.untold = "another hakmem is there"
    text = text_of(view)
    assert "another hakmem is there (1 more: hakmem profile 77)" in text and "can't be opened" not in text


def test_of_each_process_it_is_said_what_the_list_does_not_tell(hakmem, tmp_path):
    program = with_own(tmp_path)
    with running(program, "40000", "10000", "wait") as process:
        for options in ((), ("--json",)):
            said = hakmem("top", *options).stderr
            assert f"hakmem: process {process.pid}: another hakmem is in use besides the one shown here, in {LIBRARY.resolve()}" in said


def test_by_pinned_bytes_those_are_first_who_keep_most():
    """Few small blocks, each on a page of its own, keep more than many large ones side by side."""
    heap = Heap({64: mixed({3: 600}, free=40_000), 1280: mixed({2: 3000}, free=300)})
    found = pin(heap.sampled(3), heap, every=1)
    found.mappings = [of_code("/nowhere/program", start=CODE)]
    view = top.View(77, found=top.Found(77, "name", Table(77, [Row("asked", "live", resident.PROGRAM, 1, 1)], 1), found))
    assert view.key("p") and view.by == top.PINNED and view.found.taken is found
    text = text_of(view)
    assert text.index("program+0x2f") < text.index("program+0x1f")
    assert f"{len(found.tracked)} of {len(found.tracked)} slabs tracked" in text
    assert view.key("l")
    assert "slabs tracked" not in text_of(view)
    assert view.key("p")
    found.strata, found.tracked = found.strata[:1], []
    found.strata[0].tracked = 0
    assert "too few to tell who keeps it" in text_of(view)


class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_while_an_object_is_deleted_ends_it():
    """What its handler raises goes no further."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what is ignored stays so, as in a shell's background
    try:
        with top._Ending() as ending, ending.at_once():
            Dying()
            assert ending.came
            top._go_on(None, -1, 3600, None, ending)  # returns before it looks at any of these
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_saved_snapshot_is_read_as_it_was():
    heap = Heap({64: mixed({2: 1000, 3: 500}, free=9)}, [(4, 300 << 10), (5, 70 << 10)] * 4)
    before = pin(heap.sampled(1), heap, every=1)
    before.mappings = [of_code("/a path/with spaces", "abcd"), of_code("/other", start=CODE << 4)]
    after = snapshots.parse(snapshots.text_of(before), before.file)
    counted = ("process", "time", "rate", "classes", "large_blocks", "large_bytes", "samples", "sites", "mappings")
    for name in (*counted, "page_size", "strata", "tracked"):
        assert getattr(after, name) == getattr(before, name), name

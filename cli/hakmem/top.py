"""hakmem top: lists all processes that run with hakmem, or watches one of them in the terminal."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Columns
from rich.text import Text

from hakmem import exits, insight, names, outside_commands, outside_events, render, window
from hakmem.errors import Failure
from hakmem.estimates import NOT_SAMPLED
from hakmem.memory import Process, Refused, Unreadable, expect_proc, folder_of
from hakmem.names import kernel_lines
from hakmem.plausible import Damaged
from hakmem.render import byte_text
from hakmem.request_commands import ARM_SECONDS
from hakmem.resident import Table
from hakmem.snapshots import Snapshot, write
from hakmem.symbols import Symbols

PROC = Path("/proc")
LIVE, GROWTH, NAME, PINNED, ALLOCATED = "live", "growth", "name", "pinned", "allocated"
_SORTS = {"l": LIVE, "g": GROWTH, "n": NAME, "p": PINNED, "e": ALLOCATED}
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_QUIT = ("q", "\x03", "\x04")  # Ctrl-C arrives as a key only from a terminal without signals
_SAVE, _ARM = "s", "a"
_FEWEST = 5  # lines of who holds it, where a terminal is too low for everything
_HELP = (
    "l g n p e: sort by live bytes, growth, name, pinned bytes, what was allocated   "
    "a: arm or disarm   s: save a snapshot   q: quit"
)


@dataclass
class Found:
    """A process with hakmem, as far as it could be read."""

    process: int
    name: str
    table: Table | None = None
    taken: Snapshot | None = None
    problem: str = ""
    advice: str = ""  # the problem, and what to do about it
    damaged: bool = False  # what looks like its heap can't be one


def _has_hakmem(process: int) -> bool:
    """Goes by file names only, which is quick; a statically linked hakmem shows when the process is read."""
    with contextlib.suppress(OSError):
        return any("hakmem" in line for line in kernel_lines(folder_of(process) / "maps"))
    return False


def processes(user: int) -> list[int]:
    """The user's processes, or everybody's if the user is root."""
    expect_proc()
    found = []
    for folder in PROC.iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdecimal() and int(folder.name) != os.getpid() and user in (0, folder.stat().st_uid):
                found.append(int(folder.name))
    return sorted(found)


def name_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return names.of_process(process)
    return "?"


def look(process: int, pinned: bool = False) -> Found:
    """Reads one process; sets a problem instead of a table if it can't be read. Reads who keeps pages only if `pinned`."""
    found = Found(process, name_of(process))
    try:
        found.table, found.taken = window.table_of(process, pinned)
    except (Failure, Unreadable, OSError) as error:
        found.advice = getattr(error, "message", "") or "it changed while it was read, or ended"
        found.problem = getattr(error, "why", found.advice)
        found.damaged = isinstance(error, Damaged)
    return found


def is_of_hakmem(found: Found) -> bool:
    return found.table is not None or found.damaged or (_has_hakmem(found.process) and "no hakmem" not in found.problem)


def all_found(user: int) -> list[Found]:
    """Every process with hakmem; an unreadable process counts if it has hakmem's library mapped."""
    found = []
    for process in processes(user):
        each = look(process)
        if is_of_hakmem(each):
            found.append(each)
    return sorted(found, key=lambda each: -((each.table and each.table.total) or 0))


def _group_text(found: list[Found]) -> str | None:
    """What is said of the control group with the most page cache; processes of one group need not all say it."""
    tables = [each.table for each in found if each.table is not None and each.table.verdict.beside]
    if not tables:
        return None
    most = max(tables, key=lambda table: table.group_cache or 0)
    return f"Process {most.process}: {most.verdict.beside}."


def list_table(found: list[Found]) -> Columns:
    columns = Columns(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title in ("process", "resident", "live"):
        columns.add_column(title, justify="right", no_wrap=True)
    columns.add_column("name", no_wrap=True)
    columns.add_column("verdict", overflow="fold")
    for each in found:
        if each.table is None or each.taken is None:
            columns.add_row(str(each.process), "", "", each.name, Text(each.problem, style="dim"))
            continue
        total, live = byte_text(each.table.total or 0), byte_text(each.taken.live_bytes)
        by_window = "" if each.table.window_age is None else " (from its window)"
        columns.add_row(str(each.process), total, live, each.name, each.table.verdict.brief + by_window)
    columns.caption, columns.caption_justify = _group_text(found), "left"
    return columns


# ---- One process ----


def _armed_text(seconds: float) -> str:
    if not seconds:
        return ""
    return "armed: counting allocations" + (f", {seconds:.0f} s left" if math.isfinite(seconds) else ", permanently")


def _remark_text(process: int, remarks: list[str]) -> str:
    """Only the first remark, since there is no room for all."""
    if len(remarks) < 2:
        return "".join(remarks)
    return f"{remarks[0]} ({len(remarks) - 1} more: hakmem profile {process})"


@dataclass
class View:
    """What is shown of a process over time."""

    process: int
    by: str = LIVE
    top: int = 10
    first: dict[str, int] = field(default_factory=dict)  # what each function held at first
    since: float = field(default_factory=time.monotonic)
    found: Found | None = None
    said: str = ""

    def refresh(self) -> None:
        self.found = look(self.process, self.by == PINNED)

    def key(self, key: str) -> bool:
        """Handles a key; False if it asks to quit."""
        if key in _QUIT:
            return False
        if key in _SORTS:
            self.by = _SORTS[key]
            taken = self.found.taken if self.found is not None else None
            if self.by == PINNED and taken is not None and not taken.strata:
                self.refresh()
        elif key == _SAVE:
            self.save()
        elif key == _ARM:
            self.arm()
        return True

    def arm(self) -> None:
        """Arms the process for a while, as hakmem arm does, or disarms it."""
        if self.found is None or self.found.taken is None:
            return
        source = None
        try:
            source = Process(self.process)
            self.said = outside_events.arm(source, 0 if self.found.taken.armed else ARM_SECONDS)
        except Refused as refused:
            self.said = f"not armed: {refused.why}"
        except (Failure, Unreadable, OSError) as error:
            self.said = f"not armed: {getattr(error, 'message', '') or error}"
        finally:
            if source is not None:
                source.close()
        self.refresh()

    def save(self) -> None:
        if self.found is None or self.found.taken is None:
            return
        taken = self.found.taken
        if not taken.strata:
            taken = look(self.process, pinned=True).taken or taken
        path = Path(f"heap.{self.process}.{time.strftime('%H%M%S')}")
        try:
            write(taken, path)
            self.said = f"saved {path}"
        except OSError as error:
            self.said = f"{path}: {error.strerror}"

    def functions(self, taken: Snapshot, names: Symbols, top: int) -> list[tuple[str, insight.Row, int]]:
        """Names, rows, and their growth since the view began."""
        shown, _ = insight.rows(taken, names, insight.FUNCTION)
        named = [(row.name, row) for row in shown if row.line.key != NOT_SAMPLED]
        if not self.first:
            self.first = {name: row.line.bytes for name, row in named}
        grown = [(name, row, row.line.bytes - self.first.get(name, 0)) for name, row in named]
        order = {
            LIVE: lambda each: -each[1].line.bytes,
            GROWTH: lambda each: -each[2],
            NAME: lambda each: each[0],
        }
        return sorted(grown, key=order[self.by])[:top]

    def _columns(self, titles: tuple[str, ...], low: bool) -> Columns:
        """A table of who has the memory; on a low terminal one line for each, however long the name."""
        columns = Columns(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=not low)
        for title in titles:
            columns.add_column(title, justify="right", no_wrap=True)
        columns.add_column(f"allocated by (sorted by {self.by})", no_wrap=low, overflow="ellipsis" if low else "fold")
        return columns

    def by_live(self, taken: Snapshot, names: Symbols, top: int, low: bool) -> RenderableType:
        if not taken.rate:
            return Text("no blocks are sampled: who holds them is not known")
        columns = self._columns(("live", "±", f"last {insight.age_text(time.monotonic() - self.since)}"), low)
        for name, row, grown in self.functions(taken, names, top):
            change = f"{'+' if grown >= 0 else '-'}{byte_text(abs(grown))}"
            columns.add_row(byte_text(row.line.bytes), byte_text(row.line.error), change, name)
        return columns

    def by_pinned(self, taken: Snapshot, names: Symbols, top: int, low: bool) -> RenderableType:
        """Who keeps partly free pages, and the live bytes of each."""
        kept = insight.pinned_rows(taken, names, insight.FUNCTION, top)
        if kept is None:
            return Text("who keeps pages is not known")
        rows, whole = kept
        heading = Text("\n".join(insight.pinned_heading(whole, taken.page_size)))
        if whole.too_small:
            return heading
        lines, _ = insight.rows(taken, names, insight.FUNCTION)
        live = {line.line.key: byte_text(line.line.bytes) for line in lines}
        columns = self._columns(("pinned", "±", "sole", "±", "live"), low)
        for row in rows:
            pinned, error, _, sole, sole_error, *_ = insight.pinned_cells(row.line, whole)
            columns.add_row(pinned, error, sole, sole_error, live.get(row.line.key, ""), row.name)
        return Group(heading, columns)

    def by_allocated(self, taken: Snapshot, names: Symbols, top: int, low: bool) -> RenderableType:
        """Who allocated while the process was armed, freed since or not."""
        shown = insight.allocated_rows(taken, names, insight.FUNCTION)
        if not shown and taken.window_age is not None:
            return Text("who allocates is not known")
        if not shown:
            return Text("nothing was counted" + ("" if taken.armed else ": the process is not armed"))
        columns = self._columns(("allocated", "±", "objects"), low)
        for row in shown[:top]:
            error = byte_text(row.sums.error) if row.sums.events else ""
            columns.add_row(byte_text(row.sums.bytes), error, f"{row.sums.objects:,}", row.name)
        return Group(Text(insight.allocated_heading(taken)), columns)

    def sites(self, taken: Snapshot, names: Symbols, top: int, low: bool) -> RenderableType:
        if self.by == PINNED:
            return self.by_pinned(taken, names, top, low)
        return self.by_allocated(taken, names, top, low) if self.by == ALLOCATED else self.by_live(taken, names, top, low)

    def render(self, console: Console | None = None) -> RenderableType:
        """What is known of the process; on a console as much of it as fits, so that who holds the memory and the keys are seen."""
        if self.found is None:
            return Text("reading ...")
        if self.found.table is None or self.found.taken is None:
            return Text(f"process {self.process}: {self.found.problem}")
        table, taken, names = self.found.table, self.found.taken, Symbols(self.found.taken)
        whole = self._around(outside_commands.columns(table), self.sites(taken, names, self.top, False), taken, names)
        if console is None or _lines(console, whole) <= console.height:
            return whole
        few = self.sites(taken, names, _FEWEST, True)
        for short in outside_commands.short_columns(table):
            more = console.height - _lines(console, self._around(short, few, taken, names))
            if more >= 0:
                break
        sites = self.sites(taken, names, min(self.top, _FEWEST + max(0, more)), True)
        return self._around(short, sites, taken, names)

    def _around(self, table: RenderableType, sites: RenderableType, taken: Snapshot, names: Symbols) -> RenderableType:
        heading = Text(f"{self.found.name}, process {self.process}: {self.found.table.verdict.text}", style="bold")
        source = "" if taken.window_age is None else insight.window_text(taken.window_age)
        said = filter(None, (source, _armed_text(taken.armed), _remark_text(self.process, names.remarks()), self.said))
        return Group(heading, table, sites, *(Text(each) for each in said), Text(_HELP, style="dim"))


def _lines(console: Console, shown: RenderableType) -> int:
    return len(console.render_lines(shown))


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Delivers keys as they are pressed, not line by line."""
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield file
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(file, termios.TCSADRAIN, before)


class _Ending:
    """Signals that would end this process immediately end it once the terminal is restored; SIGINT acts as q."""

    def __init__(self) -> None:
        self._came: int | None = None
        self._may_raise = False  # not while the terminal is being changed

    def _handle(self, number: int, _frame: object) -> None:
        if self._came is not None:  # it takes too long, possibly because the terminal accepts no output
            exits.end_as(-number)
        self._came = number
        if self._may_raise:
            raise SystemExit

    @property
    def came(self) -> bool:
        """Whether a signal came; what its handler raises is lost inside a __del__."""
        return self._came is not None

    def __enter__(self) -> _Ending:
        self._before = {
            number: signal.signal(number, self._handle) for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._came not in (None, signal.SIGINT):
            exits.end_as(-self._came)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        try:
            self._may_raise = True
            if self._came is not None:
                raise SystemExit
            yield
        finally:
            self._may_raise = False


def watch(process: int, seconds: float) -> None:
    """Shows the process until a key ends that, or the process ends."""
    view = View(process)
    view.refresh()
    if view.found is not None and view.found.table is None:
        raise Failure(view.found.advice)
    console = render.console()
    with _Ending() as ending, _keys() as file, Live(view.render(console), console=console, screen=True, auto_refresh=False) as live:
        with ending.at_once():
            _go_on(view, file, seconds, live, ending)


def _go_on(view: View, file: int, seconds: float, live: Live, ending: _Ending) -> None:
    due = time.monotonic() + seconds
    while not ending.came:
        ready, _, _ = select.select([file], [], [], max(0.0, due - time.monotonic()))
        if ready:
            key = os.read(file, 1).decode(errors="replace")
            if not key or not view.key(key):
                return
        else:
            view.refresh()
            due = time.monotonic() + seconds
        live.update(view.render(live.console), refresh=True)
        if not (PROC / str(view.process)).exists():
            return

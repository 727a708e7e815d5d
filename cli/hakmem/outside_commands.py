"""hakmem resident, inspect, metrics and top: reports on processes and cores, from outside."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.table import Table as Columns

from hakmem import insight, output, render
from hakmem.command_line import Seconds
from hakmem.errors import Failure
from hakmem.names import printable
from hakmem.render import byte_text

if TYPE_CHECKING:
    from hakmem.inspection import Finding
    from hakmem.memory import Memory
    from hakmem.resident import Row, Table
    from hakmem.snapshots import Snapshot
    from hakmem.symbols import Frame

_as_json = click.option("--json", "as_json", is_flag=True, help="Write everything as JSON instead.")
_UNKNOWN = "not known"


def table_of(target: str, pinned: bool = False) -> tuple[Table, Snapshot]:
    """The table of a process, a core or a snapshot's file; the snapshot includes who keeps pages if `pinned`."""
    from hakmem import memory, resident, snapshots, window

    try:
        source = memory.open_memory(target)
    except memory.Refused:
        return window.table_of(int(target), pinned)
    if not isinstance(source, bytes):
        return resident.of_memory(source, pinned)
    taken = snapshots.of_bytes(source, target)
    return resident.of_snapshot(taken), taken


CELL_TITLES = ("resident", "share", "counted")


_LEAST = 0.01  # of the resident set: a smaller row is left out where there is no room


def _size(row: Row) -> int:
    return abs((row.counted or 0) if row.resident is None else row.resident)


def cells_of(table: Table) -> Iterator[tuple[str, list[str]]]:
    """The rows that are not empty, as text."""
    return _cells(table, [row for row in table.rows if row.resident or row.counted or row.resident is None])


def _cells(table: Table, rows: list[Row]) -> Iterator[tuple[str, list[str]]]:
    total = table.total or 0
    for row in rows:
        resident = _UNKNOWN if row.resident is None else byte_text(row.resident)
        share = f"{100 * row.resident / total:.1f} %" if row.resident is not None and total else ""
        yield row.title, [resident, share, "" if row.counted is None else byte_text(row.counted)]


def columns(table: Table) -> Columns:
    shown = _columns(cells_of(table), edge=True)
    if table.total is not None:
        shown.add_section()
        shown.add_row(*_total_cells(table))
        if table.swapped:
            shown.add_row("swapped out, not part of it", byte_text(table.swapped), "", "")
    if table.group_total is not None:
        shown.add_row("its control group", byte_text(table.group_total), "", "")
        if table.group_cache is not None:
            shown.add_row("page cache in it", byte_text(table.group_cache), "", "")
        if table.group_limit is not None:
            shown.add_row("its limit", byte_text(table.group_limit), "", "")
    shown.caption = "Counted: by the heap's own records, resident or not."
    shown.caption_justify = "left"
    return shown


def short_columns(table: Table) -> Iterator[Columns]:
    """The rows that matter in as few lines as possible, then without the smallest of them, and so on."""
    least = _LEAST * (table.total or 0)
    rows = [row for row in table.rows if _size(row) > least]
    for count in range(len(rows), -1, -1):
        largest = sorted(rows, key=_size, reverse=True)[:count]
        shown = _columns(_cells(table, [row for row in rows if row in largest]), edge=False)
        if table.total is not None:
            shown.add_row(*_total_cells(table))
        yield shown


def _total_cells(table: Table) -> tuple[str, ...]:
    return "resident set", byte_text(table.total or 0), "100.0 %", ""


def _columns(cells: Iterable[tuple[str, list[str]]], *, edge: bool) -> Columns:
    shown = Columns(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=edge)
    shown.add_column("", overflow="fold")
    for title in CELL_TITLES:
        shown.add_column(title, justify="right", no_wrap=True)
    for title, figures in cells:
        shown.add_row(title, *figures)
    return shown


def json_of(table: Table) -> dict:
    return {
        "process": table.process,
        "window_age": table.window_age,
        "resident": table.total,
        "swapped": table.swapped,
        "control_group": table.group_total,
        "control_group_cache": table.group_cache,
        "control_group_limit": table.group_limit,
        "rows": [
            {"key": row.key, "title": row.title, "group": row.group, "resident": row.resident, "counted": row.counted}
            for row in table.rows
        ],
        "verdict": {"kind": table.verdict.kind, "text": table.verdict.text},
    }


@click.command("resident")
@_as_json
@click.argument("target", metavar="PID|CORE|FILE")
def resident_command(as_json: bool, target: str) -> None:
    """Show what makes up a process's resident set, down to the last page, with a verdict.

    A core or a snapshot does not say which pages were resident; for these, only what the heap has counted is shown.
    """
    table, taken = table_of(target)
    if taken.untold:
        print(f"hakmem: {printable(taken.untold)}", file=sys.stderr)
    if as_json:
        click.echo(json.dumps(json_of(table), indent=2))
        return
    if table.window_age is not None:
        click.echo(insight.window_text(table.window_age))
    render.print_wide(columns(table))
    if table.verdict.text:
        click.echo(table.verdict.text)


def _readings(_context: click.Context, _option: click.Parameter, text: str) -> list[int]:
    """The addresses that the word may mean, the likelier first: bare digits are decimal, or hexadecimal as in /proc/PID/maps."""
    is_plain = text.isdecimal()
    bases = (16, 10) if is_plain and text[0] == "0" else (10, 16) if is_plain else (16,)
    with contextlib.suppress(ValueError):
        numbers = dict.fromkeys(int(text, base) for base in bases)
        found = [number for number in numbers if 0 <= number < 1 << 64]
        if found:
            return found
    raise Failure(f"{text}: not an address")


def _address(source: Memory, readings: list[int]) -> int:
    """The first reading that is mapped. Prints which of several was taken, unless that is not a guess."""
    address = next((each for each in readings if source.area_at(each)), readings[0])
    if len(readings) > 1 and (address != readings[0] or not source.area_at(address)):
        several = " or ".join(map(hex, readings))
        print(f"hakmem: the address may mean {several}; taken as {address:#x}: with 0x it is unambiguous", file=sys.stderr)
    return address


@click.command("inspect")
@_as_json
@click.argument("target", metavar="PID|CORE")
@click.argument("address", callback=_readings)
def inspect_command(as_json: bool, target: str, address: list[int]) -> None:
    """Show what lies at ADDRESS in a process or a core: a block and its state, free memory, hakmem's own memory, or memory outside hakmem.

    For a sampled block, also show where and when it was allocated, and how many bytes were requested. ADDRESS is hexadecimal if it has 0x
    or a letter. Digits alone are taken as decimal, or as hexadecimal, as in /proc/PID/maps, if the first digit is 0 or only that address
    is mapped. The command reports when it had to guess.
    """
    from hakmem import inspection, memory, outside, symbols

    source = memory.open_memory(target)
    if isinstance(source, bytes):
        raise Failure(f"{target}: neither a process nor a core")
    with memory.whole(source):
        found, taken = inspection.inspect(outside.Reader(source), _address(source, address))
    names = symbols.Symbols(taken)
    frames = []
    if found.sample is not None:
        site = names.outside(found.sample.site)
        frames = names.stack(site)
    if as_json:
        click.echo(json.dumps(_finding_json(found, frames), indent=2))
        return
    click.echo(found.sentence())
    for fact, text in found.facts.items():
        click.echo(f"  {fact} {text}")
    if found.sample is not None:
        sample = found.sample
        earlier = "; perhaps of an earlier block there" if sample.quiet else ""
        tag = f", tag {sample.tag}" if sample.tag else ""
        click.echo(f"  sampled: {sample.asked} bytes requested, {insight.age_text(sample.age)} ago{tag}{earlier}")
        for frame in frames:
            click.echo(f"    {frame.name} {frame.place}".rstrip())
    elif found.is_block and found.kind == inspection.LIVE:
        click.echo("  not sampled: who allocated it is not known")


def _finding_json(found: Finding, frames: list[Frame]) -> dict:
    sample = found.sample
    return {
        "address": found.address,
        "kind": found.kind,
        "detail": found.detail,
        "start": found.start,
        "size": found.size,
        "class": found.size_class,
        "facts": found.facts,
        "sample": sample
        and {
            "asked": sample.asked,
            "age": sample.age,
            "tag": sample.tag,
            "quiet": sample.quiet,
            "frames": [{"function": frame.name, "place": frame.place} for frame in frames],
        },
    }


@click.command("metrics")
@click.option("--listen", metavar="ADDRESS", help="Serve HTTP at [HOST:]PORT; without HOST, only to this machine.")
@click.option(
    "--textfile",
    type=output.OutFile(),
    metavar="FILE.prom",
    help="Write FILE, replacing it atomically, for the node exporter's textfile collector.",
)
@click.option("--seconds", type=Seconds(min=1), metavar="N", help="With --textfile: write it again every N seconds.")
@click.option(
    "--functions",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Report the live bytes of this many functions of each process; 0 needs no symbols.",
)
@click.argument("processes", type=click.IntRange(min=1), nargs=-1, metavar="[PID]...")
def metrics_command(
    listen: str | None, textfile: str | None, seconds: float | None, functions: int, processes: tuple[int, ...]
) -> None:
    """Export what hakmem processes hold as OpenMetrics: those given as PID, or else all of this user's; for root, everybody's.

    Prints them once to standard output, unless --listen or --textfile is given. Processes are read from outside, and only on request; that
    takes the right to trace them, or a window in each of them (HAKMEM_WINDOW).
    """
    from hakmem import metrics

    if listen is not None and textfile is not None:
        raise click.UsageError("--listen and --textfile don't go together")
    if seconds is not None and textfile is None:
        raise click.UsageError("--seconds needs --textfile")
    registry = metrics.registry_of(tuple(dict.fromkeys(processes)), os.geteuid(), functions)
    if listen is not None:
        where, thread = metrics.serve(registry, *metrics.address_of(listen))
        click.echo(where)
        thread.join()
    elif textfile is None:
        click.echo(metrics.text_of(registry), nl=False)
    else:
        metrics.write(registry, textfile)
        while seconds is not None:
            time.sleep(seconds)
            try:
                metrics.write(registry, textfile)
            except Failure as failure:  # a full disk may have room later
                print(f"hakmem: {failure}", file=sys.stderr)


@click.command("top")
@_as_json
@click.option("--seconds", type=Seconds(min=0.1), default=2.0, show_default=True, help="How many seconds between updates.")
@click.argument("process", type=click.IntRange(min=1), required=False, metavar="[PID]")
def top_command(as_json: bool, seconds: float, process: int | None) -> None:
    """List the processes that use hakmem, with what makes up their memory, or watch one of them.

    Without PID, list this user's processes; for root, everybody's. With PID, on a terminal, update the table until q is pressed; the key a
    arms the process, as hakmem arm PID does, or disarms it, and e shows who allocates.
    """
    from hakmem import top

    if process is None:
        found = top.all_found(os.geteuid())
        if as_json:
            listed = [(each, each.table) for each in found if each.table is not None]
            click.echo(json.dumps([{"name": each.name} | json_of(table) for each, table in listed], indent=2))
            for each in found:
                if each.damaged:
                    print(f"hakmem: {each.problem}", file=sys.stderr)
        elif not found:
            click.echo("no process with hakmem")
        else:
            render.print_wide(top.list_table(found))
        for each in found:
            if each.taken is not None and each.taken.untold:
                print(f"hakmem: process {each.process}: {printable(each.taken.untold)}", file=sys.stderr)
    elif as_json:
        raise click.UsageError("--json writes the list of all processes; for one, use hakmem resident --json PID")
    elif not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout)) or Console().is_dumb_terminal:
        raise click.UsageError(
            "watching a process needs a terminal that can clear its screen; elsewhere, use hakmem resident PID"
        )
    else:
        top.watch(process, seconds)

"""hakmem profile and hakmem diff: arguments in, files and tables out."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem import insight, outside_commands, output, render
from hakmem.command_line import Judging, Seconds
from hakmem.errors import Failure
from hakmem.names import of_process

if TYPE_CHECKING:
    from hakmem.estimates import Stacks
    from hakmem.resident import Table
    from hakmem.snapshots import Snapshot
    from hakmem.symbols import Symbols

_CHANGED = 1

_file = click.Path(exists=True, dir_okay=False)
_out = output.OutFile()
_top = click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Show at most this many lines.")
_depth = click.option("--depth", type=click.IntRange(min=1), default=4, show_default=True, help="Show at most this many calls per stack.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Write everything as JSON instead.")


def _remark(remarks: list[str]) -> None:
    for remark in remarks:
        print(f"hakmem: {remark}", file=sys.stderr)


def taken(target: str) -> Snapshot:
    """The snapshot of a process, a core or a file."""
    from hakmem import memory, outside, snapshots, window

    try:
        source = memory.open_memory(target)
    except memory.Refused as refused:
        return window.snapshot(int(target), refused)
    return snapshots.of_bytes(source, target) if isinstance(source, bytes) else outside.read(source)


def counted(target: str, seconds: float) -> Snapshot:
    """The snapshot of a process, after it was armed for that time."""
    from hakmem import memory, outside_events

    source = memory.open_memory(target)
    if isinstance(source, bytes):
        raise click.UsageError("--events needs a running process: a file holds only what was counted before it was written")
    return outside_events.watch(source, seconds)


def _why_nothing(process: int) -> str:
    from hakmem import groups, memory

    if memory.is_stopped(process):
        return "the process is stopped"
    if groups.is_frozen(process):
        return "the process is frozen, by its control group"
    return "the process allocated little, or none of its threads took a slow path, where it would see that it is armed"


def _is_process(target: str) -> bool:
    from hakmem import memory

    try:
        return isinstance(memory.open_memory(target), memory.Process)
    except memory.Refused:
        return True


def _name_of(target: str) -> str:
    """The name of a running process, as hakmem top shows it; otherwise nothing."""
    with contextlib.suppress(OSError, ValueError):
        return "" if Path(target).exists() else of_process(int(target))
    return ""


def _before(target: str, since: str | None, interval: float | None) -> Snapshot | Stacks | None:
    """What the target is compared with: a file, or its own snapshot `interval` seconds earlier."""
    from hakmem import diff

    if since and interval:
        raise click.UsageError("--since and --interval don't go together")
    if since:
        return diff.read(since)
    if not interval:
        return None
    if Path(target).exists() and not _is_process(target):
        raise click.UsageError("--interval needs a running process: a file does not change")
    first = taken(target)
    time.sleep(interval)
    return first


def _page(read: Snapshot, names: Symbols, table: Table | None, before: Snapshot | Stacks | None) -> bytes:
    from hakmem import diff, flame

    difference = None if before is None else diff.compare(before, read)
    return flame.page(read, names, table, difference).encode(errors="replace")


@click.command()
@_top
@_depth
@click.option(
    "--by",
    type=click.Choice([insight.SITE, insight.FUNCTION, insight.TAG]),
    default=insight.SITE,
    show_default=True,
    help="What each line stands for: a call stack, the function that allocated, or the thread's label.",
)
@_as_json
@click.option("--pprof", "pprof_out", type=_out, metavar="OUT", help="Write a profile for `go tool pprof`.")
@click.option("--otlp", "otlp_out", type=_out, metavar="OUT", help="Write profiles for OpenTelemetry (v1development).")
@click.option("--html", "html_out", type=_out, metavar="OUT", help="Write an HTML page with a flame graph.")
@click.option(
    "--since", metavar="FILE", type=_file, help="With --html: show what grew since this snapshot or pprof profile."
)
@click.option(
    "--interval",
    type=Seconds(min=0, min_open=True),
    metavar="SECONDS",
    help="With --html: show what a process's heap gains in the next SECONDS.",
)
@click.option(
    "--events",
    type=Seconds(min=0, min_open=True),
    metavar="SECONDS",
    help="Count all that the process allocates in the next SECONDS, even what it soon frees.",
)
@click.option("--save", "save_out", type=_out, metavar="OUT", help="Write the snapshot, as the process itself would.")
@click.argument("target", metavar="PID|CORE|FILE")
def profile(
    top: int,
    depth: int,
    by: str,
    as_json: bool,
    pprof_out: str | None,
    otlp_out: str | None,
    html_out: str | None,
    since: str | None,
    interval: float | None,
    events: float | None,
    save_out: str | None,
    target: str,
) -> None:
    """Show who holds the memory in a running process (without disturbing it), a core, or a snapshot written with
    HAKMEM_PROFILE=FILE or hak_profile_write.

    The lines sum to what the allocator counted as live, and each has a standard error. A second table shows who keeps
    partly free pages in use.
    """
    from hakmem import pprof_files, snapshots, symbols  # here, since their packages take a while to load

    if (since or interval) and not html_out:
        raise click.UsageError("--since and --interval need --html; hakmem diff shows the changes as text")
    output.apart((target, since), (pprof_out, otlp_out, html_out, save_out))
    before = _before(target, since, interval)
    table, read = outside_commands.table_of(target, pinned=True) if html_out else (None, None if events else taken(target))
    if events:
        read = counted(target, events)
        if read.seconds < events:
            _remark([f"counted for {read.seconds:g} s instead of {events:g}: then somebody disarmed the process"])
        if not (read.counted or read.allocated):
            _remark([f"nothing was counted: {_why_nothing(read.process)}"])
    names = symbols.Symbols(read)
    if pprof_out:
        output.write(pprof_out, pprof_files.encode(read, names))
    if otlp_out:
        try:
            from hakmem import otlp  # few need it, and its library takes a while to load too
        except ImportError:
            raise Failure("--otlp needs the module opentelemetry-proto 1.43, which needs Python 3.10") from None
        output.write(otlp_out, otlp.encode(read, names))
    if html_out:
        output.write(html_out, _page(read, names, table, before))
    if save_out:
        output.write(save_out, snapshots.text_of(read).encode(errors="surrogateescape"))
    if as_json:
        shown, _ = insight.rows(read, names, by)
        kept = insight.pinned_rows(read, names, by)
        allocated = insight.allocated_rows(read, names, by)
        click.echo(json.dumps(insight.profile_json(read, shown, kept, allocated, names.remarks()), indent=2))
        return
    if not (pprof_out or otlp_out or html_out or save_out):
        shown, count = insight.rows(read, names, by, top)
        for line in insight.heading(read, _name_of(target)):
            click.echo(line)
        render.print_wide(insight.profile_table(read, shown, count, depth))
        if kept := insight.pinned_rows(read, names, by, top):
            rows, whole = kept
            for line in insight.pinned_heading(whole, read.page_size):
                click.echo(line)
            if not whole.too_small:
                render.print_wide(insight.pinned_table(rows, whole, depth))
        if allocated := insight.allocated_rows(read, names, by):
            click.echo(insight.allocated_heading(read))
            render.print_wide(insight.allocated_table(read, allocated, top, depth))
    _remark(names.remarks())


@click.command(cls=Judging)
@_top
@_depth
@click.option("--all", "everything", is_flag=True, help="Also show changes that may be due to chance.")
@_as_json
@click.argument("before", type=_file)
@click.argument("after", type=_file)
def diff(top: int, depth: int, everything: bool, as_json: bool, before: str, after: str) -> None:
    """Show which sites hold more or less memory in AFTER than in BEFORE, beyond what sampling explains.

    Both are snapshots or pprof profiles. The exit code is 1 if any site changed, 0 if none did, and 2 for errors.
    """
    from hakmem.diff import compare_files

    difference = compare_files(before, after)
    if as_json:
        click.echo(json.dumps(insight.difference_json(difference), indent=2))
    else:
        for line in insight.difference_heading(difference):
            click.echo(line)
        if not difference.told:
            click.echo("no site changed beyond chance")
        if difference.told or everything:
            render.print_wide(insight.difference_table(difference, top, depth, everything))
        _remark(difference.remarks)
    sys.exit(_CHANGED if difference.told else 0)

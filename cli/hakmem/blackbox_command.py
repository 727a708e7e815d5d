"""hakmem blackbox, and hakmem run --blackbox: what held the memory before a process was killed."""

from __future__ import annotations

import datetime
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box as boxes
from rich.table import Table

from hakmem import blackbox, insight, outside_commands, output, render
from hakmem.errors import Failure
from hakmem.exits import Ended
from hakmem.render import byte_text

if TYPE_CHECKING:
    from hakmem.blackbox import Box, Entry


def _when(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc):%Y-%m-%d %H:%M:%S}"


def _list(box: Box) -> Table:
    table = Table(box=boxes.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title in ("entry", "UTC", "before newest", "resident", "control group", "group limit"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("reason")
    for entry in box.entries:
        table.add_row(
            str(entry.number),
            _when(entry.time),
            f"{box.newest.time - entry.time:.1f} s",
            *(byte_text(size) if size else "" for size in (entry.resident, entry.group, entry.limit)),
            entry.why,
        )
    return table


def _facts(box: Box, entry: Entry) -> dict[str, Any]:
    return {
        "process": box.process,
        "entry": entry.number,
        "time": entry.time,
        "resident": entry.resident or None,
        "group": entry.group or None,
        "group_limit": entry.limit or None,
        "why": entry.why,
    }


def _show(box: Box, entry: Entry, top: int, depth: int, *, to_errors: bool) -> None:
    from hakmem import resident, snapshots, symbols

    taken = snapshots.parse(entry.text.decode(errors="surrogateescape"), box.file)
    names = symbols.Symbols(taken)
    rows, count = insight.rows(taken, names, insight.SITE, top)
    table = resident.of_snapshot(taken)
    for line in insight.heading(taken):
        click.echo(line, err=to_errors)
    if entry.limit:
        share = 100 * entry.group / entry.limit
        line = f"its control group held {byte_text(entry.group)} of a limit of {byte_text(entry.limit)}: {share:.0f} %"
        click.echo(line, err=to_errors)
    render.print_wide(outside_commands.columns(table), to_errors=to_errors)
    if table.verdict.text:
        click.echo(table.verdict.text, err=to_errors)
    render.print_wide(insight.profile_table(taken, rows, count, depth), to_errors=to_errors)
    for remark in names.remarks():
        print(f"hakmem: {remark}", file=sys.stderr)


def _of_number(box: Box, number: int | None) -> Entry:
    if number is None:
        return box.newest
    for entry in box.entries:
        if entry.number == number:
            return entry
    raise Failure(f"{box.file}: no complete entry {number}; --all lists the entries")


@click.command("blackbox")
@click.option("--all", "everything", is_flag=True, help="List all entries, with their time and resident set.")
@click.option("--entry", "number", type=click.IntRange(min=0), metavar="N", help="Show this entry instead of the newest.")
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Show at most this many lines.")
@click.option("--depth", type=click.IntRange(min=1), default=4, show_default=True, help="Show at most this many calls per stack.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON instead.")
@click.option(
    "--save",
    type=output.OutFile(),
    metavar="OUT",
    help="Write the entry as a snapshot, for hakmem profile and hakmem diff.",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def blackbox_command(
    everything: bool, number: int | None, top: int, depth: int, as_json: bool, save: str | None, file: str
) -> None:
    """Show what held the memory of a process, even one that is gone, from its black box: the FILE of HAKMEM_BLACKBOX=FILE.

    Shows the newest complete entry, at most ten seconds old when the process ended. hakmem profile and hakmem diff read FILE too.
    """
    from hakmem import resident, snapshots, symbols

    output.apart((file,), (save,))
    box = blackbox.read(file)
    entry = _of_number(box, number)
    if everything:
        if as_json:
            click.echo(json.dumps([_facts(box, each) for each in box.entries], indent=2))
        else:
            render.print_wide(_list(box))
        return
    if save:
        output.write(save, entry.text)
        return
    if not as_json:
        click.echo(f"entry {entry.number} of process {box.process}, reason: {entry.why}")
        _show(box, entry, top, depth, to_errors=False)
        return
    taken = snapshots.parse(entry.text.decode(errors="surrogateescape"), file)
    names = symbols.Symbols(taken)
    rows, _ = insight.rows(taken, names, insight.SITE)
    whole = insight.profile_json(taken, rows, None, [], names.remarks())
    whole["table"] = outside_commands.json_of(resident.of_snapshot(taken))
    click.echo(json.dumps(_facts(box, entry) | {"torn": box.torn, "profile": whole}, indent=2))


@dataclass(frozen=True)
class LastEntry:
    """Makes the program keep a black box, and shows the last entry if a signal ended the program."""

    file: str

    def variables(self, directory: Path) -> dict[str, str]:
        return {"HAKMEM_BLACKBOX": self.file}

    def tell(self, directory: Path, ended: Ended) -> int:
        if ended.status >= 0:
            return 0
        own = output.of_process(self.file, ended.number)
        print(f"hakmem: {ended.how}", file=sys.stderr)
        try:
            box = blackbox.read(own)
            entry = box.newest
            if box.process != ended.number:
                raise Failure(f"{own}: the black box is of another process, {box.process}")
            print(f"hakmem: what held its memory {time.time() - entry.time:.1f} s ago:", file=sys.stderr)
            _show(box, entry, 20, 4, to_errors=True)
        except Failure as failure:
            print(f"hakmem: {failure.message}", file=sys.stderr)
        return 0

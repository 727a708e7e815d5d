"""hakmem profile and hakmem diff: arguments in, files and tables out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from hakmem import insight, render
from hakmem.errors import Failure

_CHANGED = 1
_FAILED = 2  # not to be taken for a change

_file = click.Path(exists=True, dir_okay=False)
_out = click.Path(dir_okay=False, writable=True)
_top = click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Show so many lines.")
_depth = click.option("--depth", type=click.IntRange(min=1), default=4, show_default=True, help="Show so many calls.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Write everything as JSON instead.")


def _write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def _remark(remarks: list[str]) -> None:
    for remark in remarks:
        print(f"hakmem: {remark}", file=sys.stderr)


@click.command()
@_top
@_depth
@click.option(
    "--by",
    type=click.Choice([insight.SITE, insight.FUNCTION, insight.TAG]),
    default=insight.SITE,
    show_default=True,
    help="What a line is for: a stack of calls, the function that allocated, or the label of the thread.",
)
@_as_json
@click.option("--pprof", "pprof_out", type=_out, metavar="OUT", help="Write a profile for `go tool pprof`.")
@click.option("--html", "html_out", type=_out, metavar="OUT", help="Write one page with a flame graph.")
@click.argument("file", type=_file)
def profile(
    top: int, depth: int, by: str, as_json: bool, pprof_out: str | None, html_out: str | None, file: str
) -> None:
    """Show who holds the memory, by a snapshot: written with HAKMEM_PROFILE=FILE or hak_profile_write.

    All lines sum to what the allocator counted as live, and each has a standard error.
    """
    from hakmem import flame, pprof, snapshot, symbols  # what they need takes a while to load

    read = snapshot.read(file)
    names = symbols.Symbols(read)
    if pprof_out:
        _write(pprof_out, pprof.encode(read, names))
    if html_out:
        _write(html_out, flame.page(read, names).encode(errors="replace"))
    if as_json:
        shown, _ = insight.rows(read, names, by)
        click.echo(json.dumps(insight.profile_json(read, shown, names.remarks()), indent=2))
        return
    if not (pprof_out or html_out):
        shown, count = insight.rows(read, names, by, top)
        for line in insight.heading(read):
            click.echo(line)
        render.print_wide(insight.profile_table(read, shown, count, depth))
    _remark(names.remarks())


@click.command()
@_top
@_depth
@click.option("--all", "everything", is_flag=True, help="Show also what may be by chance.")
@_as_json
@click.argument("before", type=_file)
@click.argument("after", type=_file)
def diff(top: int, depth: int, everything: bool, as_json: bool, before: str, after: str) -> None:
    """Show which sites hold more or less memory AFTER than BEFORE, beyond what sampling explains.

    Both are snapshots, or profiles of pprof. The exit code is 1 if any site changed, 0 if none did, and 2 for errors.
    """
    from hakmem.diff import compare_files

    try:
        difference = compare_files(before, after)
    except Failure as failure:
        failure.exit_code = _FAILED
        raise
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

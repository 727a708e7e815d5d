"""`hakmem demo`."""

from __future__ import annotations

import sys

import click
from rich.table import Table

from hakmem import comparing, demo, peers, preload, render
from hakmem.command_line import library_option, repetitions_option


def _show_holders(holders: Table | str) -> None:
    if isinstance(holders, str):
        click.echo(holders)
        return
    click.echo("Who held its memory under hakmem at its peak; for your own program: hakmem profile PID")
    render.print_wide(holders)


@click.command("demo")
@repetitions_option
@library_option
def demo_command(repetitions: int, library: str | None) -> None:
    """Compare hakmem with the system malloc on CPython and SQLite; takes under a minute."""
    path = preload.library(library)
    there = peers.compared(path, False, ())
    click.echo(demo.INTRODUCTION)
    for part in demo.PARTS:
        comparison = comparing.with_progress(
            demo.command(part), repetitions, there, title=part.name, variables=part.variables
        )
        click.echo(f"\n{part.explanation}")
        comparing.show(comparison, part.name)
        lines = render.outcome_lines(comparison)
        for line in lines:
            print(f"hakmem: {line}", file=sys.stderr)
        if lines:
            comparing.exit_as(comparison)
        if comparison.interrupted:
            sys.exit(1)
        if part.with_holders:
            _show_holders(demo.holders(part, path))
    click.echo('\nFor your own program: make run CMD="..." or hakmem run --compare -- CMD...')

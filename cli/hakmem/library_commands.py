"""The commands that show what the library reports about itself: its options, and the statistics that it has written."""

from __future__ import annotations

from typing import TextIO

import click

from hakmem import library as library_queries
from hakmem import preload, render, reports
from hakmem.command_line import library_option


@click.command("options")
@library_option
def options_command(library: str | None) -> None:
    """List the options, which are environment variables."""
    render.print_wide(render.options_table(library_queries.options(preload.library(library))))


@click.command("stats")
@click.argument("file", type=click.File("r"))
def stats_command(file: TextIO) -> None:
    """Show the statistics in FILE, written by hakmem run --stats-file FILE.json or with HAKMEM_STATS=1 HAKMEM_STATS_FILE=FILE."""
    for report in reports.read(file):
        render.print_all(render.stats_tables(report))

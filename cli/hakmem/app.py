"""The commands: arguments in, one call into the modules beside this one, tables out."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hakmem import __version__, blackbox_command, demo, exits, leaks, output, peers, preload, render, reports
from hakmem import library as library_queries
from hakmem.bench.allocators import Allocator
from hakmem.bench.command import bench
from hakmem.command_line import CommandLine
from hakmem.compare import Comparison, compare
from hakmem.errors import Failure
from hakmem.insight_commands import diff, profile
from hakmem.outside_commands import inspect_command, metrics_command, resident_command, top_command
from hakmem.request_commands import arm_command, collect_command

library_option = click.option(
    "--library", metavar="FILE", help="Use this libhakmem.so instead of the one installed with the command line."
)
repetitions_option = click.option(
    "--repetitions",
    type=click.IntRange(min=3),
    default=5,
    show_default=True,
    help="Runs under each allocator in a comparison.",
)


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hakmem")
def main() -> None:
    """Run programs under hakmem, a drop-in malloc, and see what it does for them."""


@main.command(context_settings={"allow_interspersed_args": False})
@click.option("--stats", "with_stats", is_flag=True, help="Show the program's statistics when it has ended.")
@click.option("--stats-children", is_flag=True, help="With --stats: those of the processes that it started too.")
@click.option(
    "--stats-file",
    type=output.OutFile(),
    metavar="FILE",
    help="Write the statistics to FILE, as JSON where its name ends in .json and as text otherwise; %p stands for the process.",
)
@click.option("--compare", "with_compare", is_flag=True, help="Run it under the system malloc too, in turn, with a verdict.")
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="LIB",
    help="In a comparison: run it under this allocator too, a library's path or a name such as jemalloc, tcmalloc, mimalloc.",
)
@click.option("--secure", is_flag=True, help="Run or compare hakmem's secure library in place of the default one.")
@repetitions_option
@click.option(
    "--profile",
    "profile_file",
    type=output.OutFile(),
    metavar="FILE",
    help="Write a snapshot of the heap to FILE when the program exits, for hakmem profile and hakmem diff.",
)
@click.option(
    "--blackbox",
    "blackbox_file",
    type=output.OutFile(),
    metavar="FILE",
    help="Keep a black box in FILE, and show its last entry if the program is killed by a signal. %p is the process's number.",
)
@click.option(
    "--window",
    "with_window",
    is_flag=True,
    help="Let hakmem profile, resident, top and metrics see it where it may not be traced, as under Yama.",
)
@click.option("--leaks", "with_leaks", is_flag=True, help="Show what the program holds when it exits, by site.")
@click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="With --leaks: the snapshot of an earlier run. Exit with 1 where a site holds more than then, beyond chance.",
)
@click.option("--show-output", is_flag=True, help="In a comparison: don't discard what the program writes.")
@click.option("--json", "json_file", type=output.OutFile(), metavar="FILE", help="In a comparison: write it as JSON.")
@click.option(
    "--markdown", "markdown_file", type=output.OutFile(), metavar="FILE", help="In a comparison: write it as Markdown."
)
@library_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    with_stats: bool,
    stats_children: bool,
    stats_file: str | None,
    with_compare: bool,
    others: tuple[str, ...],
    secure: bool,
    repetitions: int,
    profile_file: str | None,
    blackbox_file: str | None,
    with_window: bool,
    with_leaks: bool,
    baseline: str | None,
    show_output: bool,
    json_file: str | None,
    markdown_file: str | None,
    library: str | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND under hakmem; its exit code and signals are passed through.

    With --compare, standard input is read again by each run where it is a file, and is empty otherwise.
    """
    with_stats = with_stats or stats_children or stats_file is not None
    if with_stats and with_compare:
        raise click.UsageError("--stats and --compare don't go together")
    if not with_compare and (json_file or markdown_file or show_output or others):
        raise click.UsageError("--with, --json, --markdown and --show-output belong to --compare")
    if secure and library:
        raise click.UsageError("--secure and --library don't go together: give --library the secure one")
    if with_compare and (profile_file or with_leaks):
        raise click.UsageError("--profile and --leaks don't go with --compare")
    if with_window and (with_compare or secure):
        raise click.UsageError("--window does not go with --compare and --secure")
    if blackbox_file and (with_compare or profile_file or with_leaks):
        raise click.UsageError("--blackbox does not go with --compare, --profile and --leaks")
    if baseline and not with_leaks:
        raise click.UsageError("--baseline belongs to --leaks")
    output.apart((baseline,), (profile_file, stats_file, json_file, markdown_file))
    path = preload.library(library, secure=secure)
    program = preload.program(command[0])
    preload.warn_if_unreachable(program)
    if with_compare:
        there = peers.compared(path, secure, others)
        _run_compared(list(command), repetitions, there, show_output, json_file, markdown_file)
    environment = preload.caller_environment()
    environment["LD_PRELOAD"] = preload.preload_value(environment, path)
    if with_window:
        environment["HAKMEM_WINDOW"] = "1"
    wanted: list[exits.Wanted] = []
    if with_stats:
        file = stats_file or environment.get("HAKMEM_STATS_FILE")
        if file and not Path(file).absolute().parent.is_dir():
            raise Failure(f"{file}: no such directory")
        wanted.append(reports.AtExit(file, stats_children, json=environment.get("HAKMEM_STATS_JSON") == "1"))
    if blackbox_file:
        wanted.append(blackbox_command.LastEntry(blackbox_file))
    if profile_file or with_leaks:
        wanted.append(leaks.Holding(profile_file, with_leaks, baseline))
    if wanted:
        exits.run(program, list(command), environment, wanted)
    preload.become(program, list(command), environment)


def _compare_with_progress(
    command: list[str], repetitions: int, allocators: list[Allocator], *, title: str, show_output: bool = False, **options
) -> Comparison:
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=show_output or not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task(title, total=len(allocators) * repetitions)
        runs_before = itertools.count()

        def before_run(allocator: str) -> None:
            progress.update(task, completed=next(runs_before), description=f"{title}: {allocator}")

        return compare(command, repetitions, allocators, show_output=show_output, before_run=before_run, **options)


def _show_compared(comparison: Comparison, title: str | None = None) -> None:
    if comparison.measured:
        render.print_wide(render.comparison_table(comparison, title))
    for line in render.verdict_lines(comparison):
        print(line)


def _run_compared(
    command: list[str],
    repetitions: int,
    allocators: list[Allocator],
    show_output: bool,
    json_file: str | None,
    markdown_file: str | None,
) -> None:
    comparison = _compare_with_progress(command, repetitions, allocators, title="comparing", show_output=show_output)
    _show_compared(comparison)
    if json_file:
        libraries = {entry.name: {"library": entry.library, "version": entry.version} for entry in allocators}
        told = comparison.as_json() | {"allocators": libraries, "verdict": render.verdict_lines(comparison)}
        output.write(json_file, (json.dumps(told, indent=2) + "\n").encode())
    if markdown_file and comparison.measured:
        output.write(markdown_file, render.comparison_markdown(comparison).encode(errors="replace"))
    sys.stdout.flush()
    for line in render.outcome_lines(comparison):
        print(f"hakmem: {line}", file=sys.stderr)
    _exit_as(comparison)


def _exit_as(comparison: Comparison) -> None:
    """End as the command did: of its signal, or with its exit code, hakmem's runs first."""
    runs = [run for name in (comparison.subject, *comparison.others) for run in comparison.runs[name]]
    for run in runs:
        if run.signal is not None:
            exits.end_as(-run.signal)
    sys.exit(next((run.exit_code for run in runs if run.exit_code), 0))


def _show_holders(holders: Table | str) -> None:
    if isinstance(holders, str):
        click.echo(holders)
        return
    click.echo("Who held its memory under hakmem when it had most; of your program: hakmem profile PID")
    render.print_wide(holders)


@main.command("demo")
@repetitions_option
@library_option
def demo_command(repetitions: int, library: str | None) -> None:
    """Compare hakmem with the system malloc on CPython and SQLite; takes under a minute."""
    path = preload.library(library)
    there = peers.compared(path, False, ())
    click.echo(demo.INTRODUCTION)
    for part in demo.PARTS:
        comparison = _compare_with_progress(
            demo.command(part), repetitions, there, title=part.name, variables=part.variables
        )
        click.echo(f"\n{part.explanation}")
        _show_compared(comparison, part.name)
        lines = render.outcome_lines(comparison)
        for line in lines:
            print(f"hakmem: {line}", file=sys.stderr)
        if lines:
            _exit_as(comparison)
        if comparison.interrupted:
            sys.exit(1)
        if part.with_holders:
            _show_holders(demo.holders(part, path))
    click.echo('\nAny program of yours: make run CMD="..." or hakmem run --compare -- CMD...')


@main.command()
@library_option
def options(library: str | None) -> None:
    """List the options, which are variables of the environment."""
    render.print_all([render.options_table(library_queries.options(preload.library(library)))])


@main.command("stats")
@click.argument("file", type=click.File("r"))
def stats_command(file: TextIO) -> None:
    """Show the statistics in FILE, written by hakmem run --stats-file or with HAKMEM_STATS=1 HAKMEM_STATS_FILE=FILE."""
    for report in reports.read(file):
        render.print_all(render.stats_tables(report))


main.add_command(bench)
main.add_command(profile)
main.add_command(diff)
main.add_command(blackbox_command.blackbox_command)
main.add_command(resident_command)
main.add_command(inspect_command)
main.add_command(top_command)
main.add_command(arm_command)
main.add_command(collect_command)
main.add_command(metrics_command)

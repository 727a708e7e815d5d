"""The commands: arguments in, one call into the modules beside this one, tables out."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hakmem import __version__, blackbox_command, demo, leaks, preload, render, reports
from hakmem import library as library_queries
from hakmem.bench.command import bench
from hakmem.compare import Comparison, compare
from hakmem.insight_commands import diff, profile
from hakmem.outside_commands import inspect_command, metrics_command, resident_command, top_command
from hakmem.runs import HAKMEM, SYSTEM

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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hakmem")
def main() -> None:
    """Run programs under hakmem, a drop-in malloc, and see what it does for them."""


@main.command(context_settings={"allow_interspersed_args": False})
@click.option("--stats", "with_stats", is_flag=True, help="Let the program report its statistics when it exits.")
@click.option("--compare", "with_compare", is_flag=True, help="Run it under the system malloc too, in turn.")
@repetitions_option
@click.option(
    "--profile",
    "profile_file",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write a snapshot of the heap to FILE when the program exits, for hakmem profile and hakmem diff.",
)
@click.option(
    "--blackbox",
    "blackbox_file",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Keep a black box in FILE, and show its last entry if the program is killed by a signal. %p is the process's number.",
)
@click.option("--leaks", "with_leaks", is_flag=True, help="Show what the program holds when it exits, by site.")
@click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="With --leaks: the snapshot of an earlier run. Exit with 1 where a site holds more than then, beyond chance.",
)
@click.option("--show-output", is_flag=True, help="In a comparison: don't discard what the program writes.")
@click.option("--json", "json_file", type=click.File("w"), metavar="FILE", help="In a comparison: write it as JSON.")
@library_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    with_stats: bool,
    with_compare: bool,
    repetitions: int,
    profile_file: str | None,
    blackbox_file: str | None,
    with_leaks: bool,
    baseline: str | None,
    show_output: bool,
    json_file: TextIO | None,
    library: str | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND under hakmem; its exit code and signals are passed through.

    With --compare, standard input is read again by each run where it is a file, and is empty otherwise.
    """
    if with_stats and with_compare:
        raise click.UsageError("--stats and --compare don't go together")
    if not with_compare and (json_file or show_output):
        raise click.UsageError("--json and --show-output belong to --compare")
    if with_compare and (profile_file or with_leaks):
        raise click.UsageError("--profile and --leaks don't go with --compare")
    if blackbox_file and (with_compare or profile_file or with_leaks):
        raise click.UsageError("--blackbox does not go with --compare, --profile and --leaks")
    if baseline and not with_leaks:
        raise click.UsageError("--baseline belongs to --leaks")
    path = preload.library(library)
    program = preload.program(command[0])
    preload.warn_if_unreachable(program)
    if with_compare:
        _run_compared(list(command), repetitions, path, show_output, json_file)
    environment = preload.caller_environment()
    environment["LD_PRELOAD"] = preload.preload_value(environment, path)
    if with_stats:
        environment["HAKMEM_STATS"] = "1"
    if blackbox_file:
        blackbox_command.run(program, list(command), environment, blackbox_file)
    if profile_file or with_leaks:
        leaks.run(program, list(command), environment, keep=profile_file, show=with_leaks, baseline=baseline)
    preload.become(program, list(command), environment)


def _compare_with_progress(
    command: list[str], repetitions: int, path: Path, *, title: str, show_output: bool = False, **options
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
    names = {SYSTEM: "system malloc", HAKMEM: "hakmem"}
    with progress:
        task = progress.add_task(title, total=2 * repetitions)
        runs_before = itertools.count()

        def before_run(allocator: str) -> None:
            progress.update(task, completed=next(runs_before), description=f"{title}: {names[allocator]}")

        return compare(command, repetitions, path, show_output=show_output, before_run=before_run, **options)


def _run_compared(
    command: list[str], repetitions: int, path: Path, show_output: bool, json_file: TextIO | None
) -> None:
    comparison = _compare_with_progress(command, repetitions, path, title="comparing", show_output=show_output)
    if comparison.measured:
        render.print_all([render.comparison_table(comparison)])
    if json_file:
        json.dump(comparison.as_json(), json_file, indent=2)
        json_file.write("\n")
        json_file.flush()
    sys.stdout.flush()
    for line in render.outcome_lines(comparison):
        print(f"hakmem: {line}", file=sys.stderr)
    _exit_as(comparison)


def _exit_as(comparison: Comparison) -> None:
    """End as the command did: of its signal, or with its exit code, hakmem's runs first."""
    runs = comparison.runs[HAKMEM] + comparison.runs[SYSTEM]
    for run in runs:
        if run.signal is not None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left its own core, if any
            if run.signal not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(run.signal, signal.SIG_DFL)
            os.kill(os.getpid(), run.signal)
    sys.exit(next((run.exit_code for run in runs if run.exit_code), 0))


@main.command("demo")
@repetitions_option
@library_option
def demo_command(repetitions: int, library: str | None) -> None:
    """Compare hakmem with the system malloc on CPython and SQLite; takes under a minute."""
    path = preload.library(library)
    click.echo(demo.INTRODUCTION)
    for part in demo.PARTS:
        comparison = _compare_with_progress(
            demo.command(part), repetitions, path, title=part.name, variables=part.variables
        )
        click.echo(f"\n{part.explanation}")
        if comparison.measured:
            render.print_all([render.comparison_table(comparison, part.name)])
        lines = render.outcome_lines(comparison)
        for line in lines:
            print(f"hakmem: {line}", file=sys.stderr)
        if lines:
            _exit_as(comparison)
        if comparison.interrupted:
            sys.exit(1)
    click.echo('\nAny program of yours: make run CMD="..." or hakmem run --compare -- CMD...')


@main.command()
@library_option
def options(library: str | None) -> None:
    """List the options, which are variables of the environment."""
    render.print_all([render.options_table(library_queries.options(preload.library(library)))])


@main.command("stats")
@click.argument("file", type=click.File("r"))
def stats_command(file: TextIO) -> None:
    """Show the statistics in FILE, written with HAKMEM_STATS=1 HAKMEM_STATS_FILE=FILE."""
    for report in reports.read(file):
        render.print_all(render.stats_tables(report))


main.add_command(bench)
main.add_command(profile)
main.add_command(diff)
main.add_command(blackbox_command.blackbox_command)
main.add_command(resident_command)
main.add_command(inspect_command)
main.add_command(top_command)
main.add_command(metrics_command)

"""`hakmem run`. Modules that only some options need are imported only if these are given, so that it is fast without them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from hakmem import exits, output, preload
from hakmem.command_line import library_option, repetitions_option

_OFF, _ON = ("0", "off", "false", "no"), ("1", "on", "true", "yes")  # as the library reads its options


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--stats", "with_stats", is_flag=True, help="Show the program's statistics when it has ended.")
@click.option("--stats-children", is_flag=True, help="With --stats: also show those of the processes that it started.")
@click.option(
    "--stats-file",
    type=output.OutFile(),
    metavar="FILE",
    help="Write the statistics to FILE, as JSON if its name ends in .json and as text otherwise; %p stands for the process's number.",
)
@click.option("--compare", "with_compare", is_flag=True, help="Also run it under the system malloc, in alternation, and give a verdict.")
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="LIB",
    help="In a comparison: also run it under this allocator, given as a library's path or a name such as jemalloc, tcmalloc, mimalloc.",
)
@click.option("--secure", is_flag=True, help="Run or compare hakmem's secure library instead of the default one.")
@repetitions_option
@click.option(
    "--profile",
    "profile_file",
    type=output.OutFile(),
    metavar="FILE",
    help="Write a snapshot of the heap to FILE when the program exits, for hakmem profile and hakmem diff. %p is the process's number.",
)
@click.option(
    "--blackbox",
    "blackbox_file",
    type=output.OutFile(),
    metavar="FILE",
    help="Record what holds the memory in FILE, a black box, and show its last entry if the program is killed by a signal. "
    "%p is the process's number.",
)
@click.option(
    "--window",
    "with_window",
    is_flag=True,
    help="Let hakmem profile, resident, top and metrics read the program even where it may not be traced, as under Yama.",
)
@click.option("--leaks", "with_leaks", is_flag=True, help="Show what the program holds when it exits, by allocation site.")
@click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="With --leaks: compare with this snapshot of an earlier run. The exit code is 1 if a site holds more than then, beyond chance; "
    "the program's own if the program fails; and 2 if FILE can't be read, in which case the program is not started.",
)
@click.option("--show-output", is_flag=True, help="In a comparison: don't discard the program's output.")
@click.option("--json", "json_file", type=output.OutFile(), metavar="FILE", help="In a comparison: write it as JSON.")
@click.option(
    "--markdown", "markdown_file", type=output.OutFile(), metavar="FILE", help="In a comparison: write it as Markdown."
)
@library_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(
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

    With --compare, each run reads standard input from its start if that is a file; otherwise standard input is empty.
    """
    with_stats = with_stats or stats_children or stats_file is not None
    if with_stats and with_compare:
        raise click.UsageError("--stats and --compare don't go together")
    if not with_compare and (json_file or markdown_file or show_output or others):
        raise click.UsageError("--with, --json, --markdown and --show-output need --compare")
    if secure and library:
        raise click.UsageError("--secure and --library don't go together: give --library the secure one")
    if with_compare and (profile_file or with_leaks):
        raise click.UsageError("--profile and --leaks don't go with --compare")
    if with_window and with_compare:
        raise click.UsageError("--window does not go with --compare")
    if blackbox_file and (with_compare or profile_file or with_leaks):
        raise click.UsageError("--blackbox does not go with --compare, --profile or --leaks")
    _refuse_without_keeper({"--window": with_window, "--blackbox": blackbox_file is not None}, secure)
    if baseline and not with_leaks:
        raise click.UsageError("--baseline needs --leaks")
    output.apart((baseline,), (profile_file, stats_file, json_file, markdown_file, blackbox_file))
    path = preload.library(library, secure=secure)
    program = preload.program(command[0])
    preload.warn_if_unreachable(program)
    if with_compare:
        _run_compared(list(command), repetitions, path, secure, others, show_output, json_file, markdown_file)
    environment = preload.caller_environment()
    if with_window:
        environment["HAKMEM_WINDOW"] = "1"
    wanted: list[exits.Wanted] = []
    if with_stats:
        from hakmem import reports

        file = stats_file or environment.get("HAKMEM_STATS_FILE")
        if file:
            output.expect_room(file)
        wanted.append(reports.AtExit(file, stats_children, json=environment.get("HAKMEM_STATS_JSON", "").lower() in _ON))
    if blackbox_file:
        from hakmem import blackbox_command

        output.expect_room(blackbox_file)
        wanted.append(blackbox_command.LastEntry(blackbox_file))
    if profile_file or with_leaks:
        from hakmem import leaks

        if profile_file:
            output.expect_room(profile_file)
        before = leaks.read_baseline(baseline) if baseline else None  # now, not when the program has run for hours
        wanted.append(leaks.Holding(profile_file, with_leaks, before))
    preload.put_in_front(environment, program, path, asked=bool(wanted))
    if wanted:
        exits.run(program, list(command), environment, wanted)
    preload.become(program, list(command), environment)


def _refuse_without_keeper(options: dict[str, bool], secure: bool) -> None:
    """Refuses options whose output is written by the keeper, the thread that gives memory back, if there is none."""
    for option in (name for name, given in options.items() if given):
        if secure:
            raise click.UsageError(f"{option} does not go with --secure: the secure library keeps none")
        if os.environ.get("HAKMEM_KEEPER", "").lower() in _OFF:
            raise click.UsageError(f"{option} does not go with HAKMEM_KEEPER=0: hakmem's thread, which writes it, is then not started")


def _run_compared(
    command: list[str],
    repetitions: int,
    library: Path,
    secure: bool,
    others: tuple[str, ...],
    show_output: bool,
    json_file: str | None,
    markdown_file: str | None,
) -> None:
    from hakmem import comparing, peers, render

    allocators = peers.compared(library, secure, others)
    comparison = comparing.with_progress(command, repetitions, allocators, title="comparing", show_output=show_output)
    comparing.show(comparison)
    if json_file:
        libraries = {entry.name: {"library": entry.library, "version": entry.version} for entry in allocators}
        told = comparison.as_json() | {"allocators": libraries, "verdict": render.verdict_lines(comparison)}
        output.write(json_file, (json.dumps(told, indent=2) + "\n").encode())
    if markdown_file and comparison.measured:
        output.write(markdown_file, render.comparison_markdown(comparison).encode(errors="replace"))
    if sys.stdout is not None:
        sys.stdout.flush()
    for line in render.outcome_lines(comparison):
        print(f"hakmem: {line}", file=sys.stderr)
    comparing.exit_as(comparison)

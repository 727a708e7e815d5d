"""What commands that compare allocators share: the progress, the table with its verdict, and how they end."""

from __future__ import annotations

import itertools
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hakmem import exits, render
from hakmem.bench.allocators import Allocator
from hakmem.compare import Comparison, compare


def with_progress(
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


def show(comparison: Comparison, title: str | None = None) -> None:
    if comparison.measured:
        render.print_wide(render.comparison_table(comparison, title))
    for line in render.verdict_lines(comparison):
        print(line)


def exit_as(comparison: Comparison) -> None:
    """Exits as the command did, by its signal or with its exit code; hakmem's runs come first."""
    runs = [run for name in (comparison.subject, *comparison.others) for run in comparison.runs[name]]
    for run in runs:
        if run.signal is not None:
            exits.end_as(-run.signal)
    sys.exit(next((run.exit_code for run in runs if run.exit_code), 0))

"""hakmem run --profile and --leaks: what a program still holds when it exits, and whether that grew since an earlier run."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hakmem import insight, preload, render
from hakmem.errors import Failure

GROWN = 1

_WHY_NONE = "it was killed, left by _exit, runs without hakmem, or may not write where others may"


@contextlib.contextmanager
def _signals_for(process: subprocess.Popen) -> Iterator[None]:
    """What the terminal sends reaches the program by itself; what is sent to this process alone is passed on."""
    keys, sent = (signal.SIGINT, signal.SIGQUIT), (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in keys + sent}
    for number in keys:
        signal.signal(number, signal.SIG_IGN)
    for number in sent:
        signal.signal(number, lambda got, _: process.send_signal(got))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_program(program: Path, command: list[str], environment: dict[str, str]) -> tuple[int, int]:
    """The program's number, and how it ended: its exit code, or the negative number of its signal."""
    try:
        process = subprocess.Popen(command, executable=program.absolute(), env=environment)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}", 126) from None
    with _signals_for(process):
        return process.pid, process.wait()


def end_as(ended: int) -> None:
    """End as a program did, by its signal or with its exit code."""
    if ended < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it has left its own core, if any
        if -ended not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    sys.exit(ended)


def _show_live(file: Path, top: int, depth: int) -> None:
    from hakmem import snapshots, symbols

    read = snapshots.read(str(file))
    names = symbols.Symbols(read)
    shown, count = insight.rows(read, names, insight.SITE, top)
    print("hakmem: live at exit", file=sys.stderr)
    for line in insight.heading(read):
        print(line, file=sys.stderr)
    render.print_wide(insight.profile_table(read, shown, count, depth), to_errors=True)
    for remark in names.remarks():
        print(f"hakmem: {remark}", file=sys.stderr)


def _grew(before: str, after: Path, top: int, depth: int) -> bool:
    """Shows which sites hold more than in an earlier run, beyond chance."""
    from hakmem.diff import compare_files

    difference = compare_files(before, str(after))
    difference.changes = [change for change in difference.changes if change.told and change.change > 0]
    for line in insight.difference_heading(difference):
        print(line, file=sys.stderr)
    if difference.changes:
        render.print_wide(insight.difference_table(difference, top, depth, False), to_errors=True)
    else:
        print("hakmem: no site holds more at exit, beyond chance", file=sys.stderr)
    return bool(difference.changes)


def run(
    program: Path,
    command: list[str],
    environment: dict[str, str],
    *,
    keep: str | None,
    show: bool,
    baseline: str | None,
    top: int = 20,
    depth: int = 4,
) -> None:
    """Runs the program, and ends as it does.

    The snapshot of its exit goes to the file `keep`, and with `show` to standard error as a table. Where the program ended well
    and a site holds more than in `baseline`, the exit code is GROWN.
    """
    with tempfile.TemporaryDirectory(prefix="hakmem-") as directory:
        # A number for each process: children leave snapshots too, and must not take the place of the program's.
        environment |= {"HAKMEM_PROFILE": str(Path(directory) / "%p"), "HAKMEM_INSIGHT": "1"}
        number, ended = run_program(program, command, environment)
        file = Path(directory) / str(number)
        if not file.exists():
            how = f"died of {signal.Signals(-ended).name}" if ended < 0 else f"ended with code {ended}"
            print(f"hakmem: {command[0]} {how} and left no snapshot: {_WHY_NONE}", file=sys.stderr)
            end_as(ended or GROWN)
        if keep:
            try:
                shutil.copyfile(file, keep)
            except OSError as error:
                raise Failure(f"{keep}: {error.strerror}") from None
        if show:
            _show_live(file, top, depth)
        grew = baseline is not None and _grew(baseline, file, top, depth)
    end_as(ended or (GROWN if grew else 0))

"""hakmem arm and hakmem collect: requests to a running process."""

from __future__ import annotations

import sys

import click

from hakmem.command_line import Seconds
from hakmem.errors import Failure

_NOT_DONE = 1
ARM_SECONDS = 60.0  # the default
_process = click.argument("process", type=click.IntRange(min=1), metavar="PID")


@click.command("arm")
@click.option(
    "--seconds",
    type=Seconds(min=0),
    default=ARM_SECONDS,
    show_default=True,
    help="How long to count, in seconds from now; 0 ends it.",
)
@_process
def arm_command(seconds: float, process: int) -> None:
    """Make a process count everything that it allocates for a while, even what it soon frees, and return at once.

    The counts appear in every later profile: hakmem profile PID, its --pprof output, and the snapshots that the process writes. To see
    what is allocated during the next few seconds, use hakmem profile --events. This command writes one word, a time, into the process,
    which takes the right to trace it.
    """
    from hakmem import memory, outside_events

    click.echo(f"process {process}: {outside_events.arm(memory.Process(process), seconds)}")


def _why_not(process: int, seconds: float) -> str:
    from hakmem import groups, memory

    if memory.is_stopped(process):
        return "is stopped, and does nothing until it continues"
    if groups.is_frozen(process):
        return "is frozen, by its control group, and does nothing until that is thawed"
    return (
        f"made no call to the allocator within {seconds:g} s that would see the request, and the keeper, which gives memory back, "
        "is not running in it or did not get to it"
    )


@click.command("collect")
@click.option(
    "--seconds",
    type=Seconds(min=0),
    default=5.0,
    show_default=True,
    help="How many seconds to wait for the process to do it.",
)
@_process
def collect_command(seconds: float, process: int) -> None:
    """Ask a process to give its free memory back to the system, as malloc_trim(3) would, and report its resident set before and after.

    Either a thread of the process does so, at its next allocation that its own free blocks cannot serve, or the keeper, hakmem's own
    thread, if it is running. In a large heap this may take a while. The exit code is 1 if no thread did so in time; the request is then
    withdrawn.
    """
    from hakmem import memory, outside_events
    from hakmem.render import byte_text

    source = memory.Process(process)
    before = outside_events.resident_bytes(process)
    if not outside_events.collect(source, seconds):
        print(f"hakmem: process {process} {_why_not(process, seconds)}; the request was withdrawn", file=sys.stderr)
        sys.exit(_NOT_DONE)
    after = outside_events.resident_bytes(process)
    if before is None or after is None:
        raise Failure(f"process {process}: it has ended")
    click.echo(f"process {process}: resident {byte_text(before)} before, {byte_text(after)} now")

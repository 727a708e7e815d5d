"""hakmem arm and hakmem collect: what a process that runs is asked for."""

from __future__ import annotations

import sys

import click

from hakmem.command_line import Seconds
from hakmem.errors import Failure

_NOT_DONE = 1
ARM_SECONDS = 60.0  # unless other ones are asked for
_process = click.argument("process", type=click.IntRange(min=1), metavar="PID")


@click.command("arm")
@click.option(
    "--seconds",
    type=Seconds(min=0),
    default=ARM_SECONDS,
    show_default=True,
    help="For so long from now; 0 ends it.",
)
@_process
def arm_command(seconds: float, process: int) -> None:
    """Have a process count what it allocates, freed soon or not, for a while; this command does not wait for it.

    What was counted is in every profile from then on: hakmem profile PID, its --pprof, and the snapshots that the process writes. To see
    what is allocated in some seconds from now there is hakmem profile --events. The process is written one word to, a time, which
    takes the right to trace it.
    """
    from hakmem import memory, outside_events

    click.echo(f"process {process}: {outside_events.arm(memory.Process(process), seconds)}")


def _why_not(process: int, seconds: float) -> str:
    from hakmem import memory

    if memory.is_stopped(process):
        return "is stopped, and does nothing before it goes on"
    return (
        f"has made no call to the allocator within {seconds:g} s that would see the request, and has no thread that gives memory back, "
        "or one that has not come to it"
    )


@click.command("collect")
@click.option(
    "--seconds",
    type=Seconds(min=0),
    default=5.0,
    show_default=True,
    help="Wait so long for the process to do it.",
)
@_process
def collect_command(seconds: float, process: int) -> None:
    """Have a process give back to the system what it can, as malloc_trim(3) would, and tell what its resident set was and is.

    A thread of the process does it at its next allocation that is not from its own free blocks, or the thread that gives memory back, where
    there is one; it may take a while in a large heap. The exit code is 1 if nobody did within the time; then the request is taken back.
    """
    from hakmem import memory, outside_events
    from hakmem.render import byte_text

    source = memory.Process(process)
    before = outside_events.resident_bytes(process)
    if not outside_events.collect(source, seconds):
        print(f"hakmem: process {process} {_why_not(process, seconds)}; it is asked no more", file=sys.stderr)
        sys.exit(_NOT_DONE)
    after = outside_events.resident_bytes(process)
    if before is None or after is None:
        raise Failure(f"process {process}: it has ended")
    click.echo(f"process {process}: resident {byte_text(before)} before, {byte_text(after)} now")

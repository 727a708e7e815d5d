"""What all commands share: how they end, and options that several have."""

from __future__ import annotations

import math
import signal
import sys
import traceback
from typing import Any

import click

from hakmem import exits, output
from hakmem.errors import Failure

library_option = click.option(
    "--library", metavar="FILE", help="Use this libhakmem.so instead of the one installed with the command line."
)
repetitions_option = click.option(
    "--repetitions",
    type=click.IntRange(min=3),
    default=5,
    show_default=True,
    help="Runs under each allocator in a comparison; a verdict needs at least 5.",
)

ERROR = 2  # of commands whose exit code 1 is an answer


class Seconds(click.FloatRange):
    """A time that can be waited for: click's own bounds accept infinity and NaN."""

    MOST = 1e9  # 30 years

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds) or seconds > self.MOST:
            self.fail(f"{value} is not a valid number of seconds.", param, ctx)
        return seconds


class CommandLine(click.Group):
    """The commands. A failed write is an error; if the reader has gone, a command ends with SIGPIPE."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            with output.streams():
                return super().main(*arguments, **options)
        except output.ReaderGone:
            exits.end_as(-signal.SIGPIPE)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with output.complete():
                return super().invoke(ctx)
        except KeyboardInterrupt:  # also while a command's modules are loaded; the command's exit code 1 may be an answer
            exits.end_as(-signal.SIGINT)


class Judging(click.Command):
    """A command with an answer as its exit code 1. No error may exit with that code, not even one of this program itself."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with output.complete():
                return super().invoke(ctx)
        except Failure as failure:
            failure.exit_code = ERROR
            raise
        except (click.ClickException, click.exceptions.Exit, output.ReaderGone):
            raise
        except Exception:
            traceback.print_exc()
            sys.exit(ERROR)

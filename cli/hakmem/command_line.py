"""What holds for all commands: how they end."""

from __future__ import annotations

import signal
import sys
import traceback
from typing import Any

import click

from hakmem import exits, output
from hakmem.errors import Failure

ERROR = 2  # of commands whose exit code 1 is an answer


class CommandLine(click.Group):
    """The commands. What is written must arrive; where its reader has gone they end of SIGPIPE."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            with output.streams():
                return super().main(*arguments, **options)
        except output.ReaderGone:
            exits.end_as(-signal.SIGPIPE)

    def invoke(self, ctx: click.Context) -> Any:
        with output.complete():
            return super().invoke(ctx)


class Judging(click.Command):
    """A command whose exit code 1 is an answer, which nothing else may be taken for: not an error of this program either."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with output.complete():
                return super().invoke(ctx)
        except Failure as failure:
            failure.exit_code = ERROR
            raise
        except (click.ClickException, click.exceptions.Exit, output.ReaderGone):
            raise
        except KeyboardInterrupt:
            exits.end_as(-signal.SIGINT)
        except Exception:
            traceback.print_exc()
            sys.exit(ERROR)

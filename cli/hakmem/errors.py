"""Failures that end the command line with one clear line."""

import sys

from click import ClickException

from hakmem.names import printable

NOT_EXECUTABLE = 126
NOT_FOUND = 127


class Failure(ClickException):
    """A message for standard error, and the exit code."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def show(self, file=None) -> None:
        print(f"hakmem: {printable(self.message)}", file=file or sys.stderr)

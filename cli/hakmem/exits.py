"""Runs a program to its end, reports what it leaves behind, and ends as it did."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hakmem import names, signals
from hakmem.errors import NOT_EXECUTABLE, Failure
from hakmem.forwarding import Forwarding

WHY_NONE = (
    "it was killed, ended by _exit or by the system call itself, as Go programs do, runs without hakmem, or may not write files"
)

_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_COMM = 15  # how many characters of a name the kernel keeps


@dataclass(frozen=True)
class Ended:
    """A program after its end: the process that `hakmem run` started, whatever program it became."""

    number: int
    name: str
    status: int  # its exit code, or the negative number of its signal

    @property
    def how(self) -> str:
        if self.status < 0:
            return f"{self.name} died of {signals.name_of(-self.status)}"
        return f"{self.name} ended with code {self.status}"


class Wanted(Protocol):
    """A report that is wanted at a program's end: the program writes files to a directory, and the report is made from these."""

    def variables(self, directory: Path) -> dict[str, str]: ...

    def tell(self, directory: Path, ended: Ended) -> int:
        """Prints the report; returns the exit code to use if the program ended well."""
        ...


def _last_name(process: subprocess.Popen, given: str) -> str:
    """The process's last name, since a shell may have become another program. Reads it after the end, before the process is reaped."""
    with contextlib.suppress(OSError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        name = names.of_process(process.pid)
        return name if name != given[:_COMM] else given
    return given


def _run(program: Path, command: list[str], environment: dict[str, str]) -> Ended:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller may have ignored it: then the kernel keeps no status of a child
    with Forwarding() as forwarding:
        try:
            process = subprocess.Popen(command, executable=program.absolute(), env=environment, close_fds=False)
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None
        forwarding.started(process)
        name = _last_name(process, Path(command[0]).name)
        return Ended(process.pid, name, process.wait())


def end_as(status: int) -> None:
    """Ends this process with the exit code, or by the signal -status."""
    if status < 0:
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        least = 1 if most == resource.RLIM_INFINITY else min(1, most)  # 0 would still start a handler that takes cores from a pipe
        resource.setrlimit(resource.RLIMIT_CORE, (least, least))  # the program has left its own core, if any
        with contextlib.suppress(OSError, ValueError):  # SIGKILL's action can't be set, nor that of signals that the C library reserves
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        status = 128 - status  # if the signal is blocked: as a shell reports it
    sys.exit(status)


def _told(one: Wanted, directory: Path, ended: Ended) -> int:
    """A report that fails affects neither the others nor the way the program ended."""
    try:
        return one.tell(directory, ended)
    except Failure as failure:
        failure.show()
        return failure.exit_code


def _folder() -> str:
    """A directory for temporary files. Its name must not contain %p, as TMPDIR may: the library replaces that anywhere in a path."""
    usual = tempfile.gettempdir()
    several = [usual, *_FOLDERS, os.getcwd()] if "%p" in usual else [usual]
    for folder in several:
        if "%p" not in folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    if "%p" in usual:
        raise Failure(f"{usual}: TMPDIR contains %p, which file names use for the process number, and no other directory is usable")
    return usual


def run(program: Path, command: list[str], environment: dict[str, str], wanted: Sequence[Wanted]) -> None:
    """Runs the program, prints the wanted reports, and ends as it did; never returns."""
    with tempfile.TemporaryDirectory(prefix="hakmem-", dir=_folder()) as name:
        places = []
        for index, one in enumerate(wanted):
            place = Path(name) / str(index)
            place.mkdir()
            environment = environment | one.variables(place)
            places.append(place)
        ended = _run(program, command, environment)
        codes = [_told(one, place, ended) for one, place in zip(wanted, places)]
    end_as(ended.status or max(codes))

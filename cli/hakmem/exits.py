"""Runs a program to its end for what it leaves there, and ends as it did."""

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
    "it was killed, left by _exit or by the system call itself, as Go programs do, runs without hakmem, or may not write where others may"
)

_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_COMM = 15  # so many characters of its name the kernel keeps


@dataclass(frozen=True)
class Ended:
    """A program after its end: the process that `hakmem run` started, whatever it has become since."""

    number: int
    name: str
    status: int  # its exit code, or the negative number of its signal

    @property
    def how(self) -> str:
        if self.status < 0:
            return f"{self.name} died of {signals.name_of(-self.status)}"
        return f"{self.name} ended with code {self.status}"


class Wanted(Protocol):
    """What is wanted of a program at its end: it writes it to files in a directory, and it is told from these."""

    def variables(self, directory: Path) -> dict[str, str]: ...

    def tell(self, directory: Path, ended: Ended) -> int:
        """The exit code to end with where the program ended well."""
        ...


def _last_name(process: subprocess.Popen, given: str) -> str:
    """What the process was called in the end: a shell may have become another program. It has ended, and waits to be waited for."""
    with contextlib.suppress(OSError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        name = names.of_process(process.pid)
        return name if name != given[:_COMM] else given
    return given


def _run(program: Path, command: list[str], environment: dict[str, str]) -> Ended:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller may have had it ignored: then the kernel keeps no status of a child
    with Forwarding() as forwarding:
        try:
            process = subprocess.Popen(command, executable=program.absolute(), env=environment, close_fds=False)
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None
        forwarding.started(process)
        name = _last_name(process, Path(command[0]).name)
        return Ended(process.pid, name, process.wait())


def end_as(status: int) -> None:
    """Ends with this exit code, or of the signal that is its negative."""
    if status < 0:
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        least = 1 if most == resource.RLIM_INFINITY else min(1, most)  # 0 would still start a handler that takes cores from a pipe
        resource.setrlimit(resource.RLIMIT_CORE, (least, least))  # whoever died of it first has left a core of its own, if any
        with contextlib.suppress(OSError, ValueError):  # nothing can be set for SIGKILL and those that the C library keeps for itself
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        status = 128 - status  # where it is blocked: as a shell would say it
    sys.exit(status)


def _told(one: Wanted, directory: Path, ended: Ended) -> int:
    """What fails leaves alone what else is wanted, and the program's own end."""
    try:
        return one.tell(directory, ended)
    except Failure as failure:
        failure.show()
        return failure.exit_code


def _folder() -> str:
    """Where files may be for a while. In the whole of a name the library puts the process's number for %p, which TMPDIR may have too."""
    usual = tempfile.gettempdir()
    several = [usual, *_FOLDERS, os.getcwd()] if "%p" in usual else [usual]
    for folder in several:
        if "%p" not in folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    if "%p" in usual:
        raise Failure(f"{usual}: TMPDIR has %p in it, which stands for the process in names of files, and there is no other folder")
    return usual


def run(program: Path, command: list[str], environment: dict[str, str], wanted: Sequence[Wanted]) -> None:
    """Runs the program, tells what is wanted of it, and ends as it did; returns never."""
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

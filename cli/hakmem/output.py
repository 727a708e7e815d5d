"""What a command writes: standard output and error, and the files that it is told to write. What fails there is one line.

Where nobody reads any more rich and click end with 1, which may be an answer, and other errors they pass on as they are. So a standard
stream tells of errors in its lowest layer, by exceptions that those know nothing of.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click

from hakmem.errors import Failure


class ReaderGone(Exception):
    """Nobody reads what is written: the command ends as others do, of SIGPIPE, which Python has set to be ignored."""


class _Told(io.FileIO):
    """A standard stream that tells once of what failed. What comes later is dropped: it would fail again, at the latest at the end."""

    def __init__(self, number: int, title: str) -> None:
        super().__init__(number, "w", closefd=False)
        self._title = title
        self._failed = False

    def write(self, data: Any) -> int:
        if self._failed or not len(data):  # click tries with nothing what kind of stream it is, and passes over errors
            return len(data)
        try:
            written = super().write(data)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return written
        except BrokenPipeError:
            self._failed = True
            raise ReaderGone from None
        except OSError as error:
            self._failed = True
            raise Failure(f"{self._title}: {error.strerror}") from None


def _told(stream: TextIO | None, title: str, errors: str) -> TextIO | None:
    """None is one that was closed before: what is for nobody must not go to another one."""
    try:
        raw = _Told(stream.fileno(), title)
    except (AttributeError, OSError):  # closed, or in the place of one
        return stream
    by_lines = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, errors, line_buffering=by_lines)


def _dropping() -> TextIO:
    """For remarks, where standard error is closed: print and rich take None for standard output."""
    return open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Standard output and error meanwhile tell of errors; what the encoding of the output lacks is a question mark there."""
    before = sys.stdout, sys.stderr
    sys.stdout = _told(sys.stdout, "standard output", "replace")
    sys.stderr = _told(sys.stderr, "standard error", "backslashreplace") or _dropping()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def complete() -> Iterator[None]:
    """At the end all that was written has arrived, or it is told; so is what the system has refused."""
    try:
        yield
    except OSError as error:
        name = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        raise Failure(f"{name}{error.strerror or error}") from None
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()


# ---- Files ----


class OutFile(click.Path):
    """The name of a file to write. With a slash at its end it is a directory's, which modules that handle paths lose sight of."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if os.fspath(value).endswith("/"):
            self.fail(f"{value!r} names a directory.", param, ctx)
        return super().convert(value, param, ctx)


def write(path: str, data: bytes) -> None:
    """All of a file; - is standard output."""
    if path == "-":
        if sys.stdout is None:  # as Python has it where that is closed
            raise Failure(f"standard output: {os.strerror(errno.EBADF)}")
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def of_process(name: str, process: int) -> str:
    """The file that a process has where many are given one name."""
    return name.replace("%p", str(process))


def expect_room(name: str) -> None:
    """Fails before a program runs where its file could not be written after it. Whether that can be only an attempt tells, which leaves
    nothing; of what is no file, as a pipe, it would be seen."""
    path = Path(of_process(name, os.getpid())).absolute()
    if name == "-" or (path.exists() and not path.is_file()):
        return
    if not path.parent.is_dir():
        raise Failure(f"{name}: no such directory")
    try:
        if path.exists():
            os.close(os.open(path, os.O_WRONLY))
        else:
            with contextlib.suppress(FileExistsError):  # a link to what is not there yet
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                path.unlink()
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}") from None


def _identity(path: str) -> tuple[int, int] | str | None:
    """Equal for two names of one file; None for what may be read and written at once, as a terminal."""
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)  # of a file that is not there yet
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def apart(read: Iterable[str | None], written: Iterable[str | None]) -> None:
    """Refuses to write a file over one that is read, or that is written too. A target that is no file may have any name."""
    seen = {_identity(path): "it would be written over what is read" for path in read if path and os.path.exists(path)}
    for path in filter(None, written):
        identity = _identity(path)
        if identity is not None and identity in seen:
            raise Failure(f"{path}: {seen[identity]}; name another file")
        seen[identity] = "it is named twice"

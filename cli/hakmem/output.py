"""What a command writes: standard output and error, and the files named for it. A failure there is reported in one line.

If the reader is gone, rich and click exit with 1, which may be an answer; other errors they pass on unchanged. So the standard streams
report errors in their lowest layer, by exceptions that rich and click do not handle.
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
    """The reader is gone: the command ends by SIGPIPE, as other programs do, although Python ignores that signal."""


class _Told(io.FileIO):
    """A standard stream that reports its first failure and drops what comes later, which would fail again, at the latest at the end."""

    def __init__(self, number: int, title: str) -> None:
        super().__init__(number, "w", closefd=False)
        self._title = title
        self._failed = False

    def write(self, data: Any) -> int:
        if self._failed or not len(data):  # click probes streams with empty writes, and ignores errors
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
    """Wraps a standard stream. None stands for one that was closed: its output must not go to another file."""
    try:
        raw = _Told(stream.fileno(), title)
    except (AttributeError, OSError):  # closed, or a substitute
        return stream
    by_lines = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, errors, line_buffering=by_lines)


def _dropping() -> TextIO:
    """Takes remarks if standard error is closed, since print and rich take None for standard output."""
    return open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Inside, standard output and error report errors; characters that the output's encoding lacks become question marks there."""
    before = sys.stdout, sys.stderr
    sys.stdout = _told(sys.stdout, "standard output", "replace")
    sys.stderr = _told(sys.stderr, "standard error", "backslashreplace") or _dropping()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def complete() -> Iterator[None]:
    """At the end everything written has arrived, or this fails; errors of the system become failures too."""
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
    """The name of a file to write. A slash at its end, which path modules drop, means a directory."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the name is empty.", param, ctx)
        if os.fspath(value).endswith("/"):
            self.fail(f"{value!r} names a directory.", param, ctx)
        return super().convert(value, param, ctx)


def write(path: str, data: bytes) -> None:
    """Writes a whole file; - is standard output."""
    if path == "-":
        if sys.stdout is None:  # as Python sets it if that is closed
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
    """The file of a process, if a name with %p is given to many."""
    return name.replace("%p", str(process))


def expect_room(name: str) -> None:
    """Fails before a program runs if its file could not be written afterwards. Only an attempt shows that; it leaves nothing behind. It is
    skipped for what is not a file, such as a pipe, where it would be noticed."""
    path = Path(of_process(name, os.getpid())).absolute()
    if name == "-" or (path.exists() and not path.is_file()):
        return
    if not path.parent.is_dir():
        raise Failure(f"{name}: no such directory")
    try:
        if path.exists():
            os.close(os.open(path, os.O_WRONLY))
        else:
            with contextlib.suppress(FileExistsError):  # a link to a file that does not exist yet
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                path.unlink()
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}") from None


def _identity(path: str) -> tuple[int, int] | str | None:
    """Equal for two names of one file; None for what may be both read and written, such as a terminal."""
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)  # for a file that does not exist yet
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def apart(read: Iterable[str | None], written: Iterable[str | None]) -> None:
    """Refuses to write a file over one that is read or also written. A target that is not a file may have any name."""
    seen = {_identity(path): "it would overwrite what is read" for path in read if path and os.path.exists(path)}
    for path in filter(None, written):
        identity = _identity(path)
        if identity is not None and identity in seen:
            raise Failure(f"{path}: {seen[identity]}; name another file")
        seen[identity] = "it is named twice"

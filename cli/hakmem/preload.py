"""Preloads the library into a program: finds both, sets the environment, and starts the program."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hakmem.errors import NOT_EXECUTABLE, NOT_FOUND, Failure

PACKAGE = Path(__file__).resolve().parent

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE = 1, 2, 3, 4
_ET_DYN = 3
_DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 5, 6, 10
_DT_FLAGS_1, _DF_1_PIE = 0x6FFFFFFB, 1 << 27
_SYMBOL = struct.Struct("<IBBHQQ")
_CONTENTS_MOST = 1 << 16  # bytes of the notes, and of the dynamic section
_NOTE = struct.pack("<III", 7, 8, 0x68616B) + b"hakmem\0"  # as hakmem.descriptor finds it in a process
_WRITTEN = ("HAKMEM_PROFILE", "HAKMEM_STATS_FILE", "HAKMEM_BLACKBOX")  # options with a file that each hakmem in a process writes
_OURS = ("libhakmem.so", "libhakmem-secure.so")


def library(path: str | None = None, *, secure: bool = False) -> Path:
    """The shared library at `path`, or the one in this package: the default one, or the secure one."""
    found = Path(path).resolve() if path else PACKAGE / _OURS[secure]
    if not found.is_file():
        raise Failure(f"the library {found} does not exist")
    if any(separator in str(found) for separator in " :"):
        raise Failure(f"the library is at {str(found)!r}: LD_PRELOAD can't carry a path with a space or colon")
    return found


def program(name: str) -> Path:
    """The file that `name` runs, found as a shell finds it."""
    found = shutil.which(name)
    if found:
        return Path(found)
    if "/" not in name:
        raise Failure(f"{name}: command not found", NOT_FOUND)
    if not os.path.exists(name):
        raise Failure(f"{name}: no such file", NOT_FOUND)
    raise Failure(f"{name}: not executable", NOT_EXECUTABLE)


def caller_environment() -> dict[str, str]:
    """The environment this process was given: in the C locale, Python adds LC_CTYPE to it."""
    environment = dict(os.environ)
    try:
        given = Path("/proc/self/environ").read_bytes()
    except OSError:
        return environment
    if not any(entry.startswith(b"LC_CTYPE=") for entry in given.split(b"\0")):
        environment.pop("LC_CTYPE", None)
    return environment


def _preloads(environment: dict[str, str]) -> list[str]:
    return environment.get("LD_PRELOAD", "").replace(":", " ").split()


def preload_value(environment: dict[str, str], path: Path) -> str:
    """LD_PRELOAD with the library added at the end, without other copies of hakmem, which would come first."""
    return ":".join(filter(None, (without_preload(environment), str(path))))


def without_preload(environment: dict[str, str]) -> str:
    """LD_PRELOAD with no copy of hakmem in it."""
    return ":".join(entry for entry in _preloads(environment) if not Path(entry).name.startswith(_OURS))


class _Program:
    """An executable's headers; raises OSError, OverflowError or struct.error if they can't be read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            header = file.read(64)
            self.is_elf = header[:5] == b"\x7fELF\x02"
            self._kind, *_ = struct.unpack_from("<H", header, 16) if self.is_elf else (0,)
            self._segments = list(self._table(file, header)) if self.is_elf else []
            self._notes = list(self._contents(file, _PT_NOTE))
            dynamic = b"".join(self._contents(file, _PT_DYNAMIC))
            self._dynamic = dict(struct.iter_unpack("<QQ", dynamic[: len(dynamic) // 16 * 16]))
            self._exports = list(self._exported(file)) if self.has_hakmem else []

    @staticmethod
    def _table(file: BinaryIO, header: bytes) -> Iterator[tuple[int, ...]]:
        (offset,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        table = file.read(size * count)
        for index in range(len(table) // size if size else 0):
            yield struct.unpack_from("<IIQQQQ", table, index * size)

    def _contents(self, file: BinaryIO, wanted: int) -> Iterator[bytes]:
        for kind, _, start, _, _, size in self._segments:
            if kind == wanted and size <= _CONTENTS_MOST:
                file.seek(start)
                yield file.read(size)

    def _read_at(self, file: BinaryIO, address: int, size: int) -> bytes:
        for kind, _, offset, start, _, held in self._segments:
            if kind == _PT_LOAD and start <= address < start + held:
                file.seek(offset + address - start)
                return file.read(min(size, start + held - address))
        return b""

    def _exported(self, file: BinaryIO) -> Iterator[bytes]:
        """The names that it exports. The table of symbols ends, at the latest, where its strings begin."""
        symbols, strings = self._dynamic.get(_DT_SYMTAB, 0), self._dynamic.get(_DT_STRTAB, 0)
        names = self._read_at(file, strings, self._dynamic.get(_DT_STRSZ, 0))
        table = self._read_at(file, symbols, max(0, strings - symbols))
        for name, _, _, section, _, _ in _SYMBOL.iter_unpack(table[: len(table) // _SYMBOL.size * _SYMBOL.size]):
            if section != 0 and name < len(names):
                yield names[name : names.find(b"\0", name)]

    @property
    def has_hakmem(self) -> bool:
        """Whether it is linked with the archive."""
        return any(notes[at : at + len(_NOTE)] == _NOTE for notes in self._notes for at in range(0, len(notes), 4))

    @property
    def is_static(self) -> bool:
        """Whether it starts without the dynamic loader. The loader itself can be run too, but does not count as static."""
        if not self.is_elf or any(kind == _PT_INTERP for kind, *_ in self._segments):
            return False
        return self._kind != _ET_DYN or self._dynamic.get(_DT_FLAGS_1, 0) & _DF_1_PIE != 0

    @property
    def has_hakmems_malloc(self) -> bool:
        """Whether its hakmem also serves the calls of libraries. An archive without libc's names leaves these to a preloaded library."""
        return self.has_hakmem and b"malloc" in self._exports


def _described(path: Path) -> _Program | None:
    try:
        return _Program(path)
    except (OSError, OverflowError, struct.error):
        return None


def put_in_front(environment: dict[str, str], program: Path, path: Path, *, asked: bool) -> None:
    """Makes the loader preload the library at `path`, unless the program contains a hakmem that serves malloc, which leaves it nothing to
    do. If the program's hakmem does not, and files are `asked` for, nothing is preloaded either: both would write the same files."""
    found = _described(program)
    if found and found.has_hakmems_malloc:
        return
    has_another = found is not None and found.has_hakmem and not found.is_static
    asked = asked or any(environment.get(name) for name in _WRITTEN)
    if not (asked and has_another):
        environment["LD_PRELOAD"] = preload_value(environment, path)
        return
    if others := without_preload(environment):
        environment["LD_PRELOAD"] = others
    else:
        environment.pop("LD_PRELOAD", None)
    what = "the report covers only that hakmem, and malloc is libc's"
    print(f"hakmem: {program} has hakmem linked in, so none is preloaded: {what}", file=sys.stderr)


def why_unreachable(path: Path) -> str | None:
    """Why LD_PRELOAD has no effect on the program at `path`, as far as that can be seen from outside."""
    try:
        if path.stat().st_mode & 0o6000 and os.geteuid() != 0:
            return "it runs with another user's rights (setuid or setgid)"
        program = _Program(path)
        return "it is statically linked" if program.is_static and not program.has_hakmem else None
    except (OSError, OverflowError, struct.error):
        return None


def warn_if_unreachable(path: Path) -> None:
    reason = why_unreachable(path)
    if reason:
        print(f"hakmem: warning: {path} runs without hakmem: {reason}", file=sys.stderr)


def become(path: Path, command: list[str], environment: dict[str, str]) -> None:
    """Replaces this process by the program; never returns."""
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execve(path, command, environment)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None

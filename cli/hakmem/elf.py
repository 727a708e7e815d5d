"""Names and source lines of a program or library, from its tables and those that are kept apart from it."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import errno
import io
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, Section, SymbolTableSection
from elftools.elf.segments import Segment

from hakmem import plausible
from hakmem.dwarf import Call, Sources
from hakmem.errors import Failure

DEBUG_ROOT = Path("/usr/lib/debug")

_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_EXECUTABLE = 1  # PF_X
_PAGE = 4096
_NOTES_MOST = 1 << 16  # bytes of a section
_SECTIONS_MOST = 1 << 16  # of a file of holes there might be any number
_FILE = 4  # STT_FILE: the local symbols after it are of that source
_BINDINGS = {1: 0, 2: 1, 0: 2}  # global, weak, local: which of the names of one place to take
_LOCAL = _BINDINGS[0]
_HIDDEN = (1, 2)  # STV_INTERNAL, STV_HIDDEN: what lies behind some other source's symbols if the linker makes it local
_ANOTHER = "the file is another one than the process ran (the build id differs)"
_NOT_ITS_OWN = "the process has mapped another file than the one there, and no build id tells what it was"
_OUR_SOURCE = "hakmem.c"
_OUR_MARK = "hak_malloc"

# The names by which a program calls hakmem when it is linked with it.
ENTRIES = frozenset(
    "malloc calloc realloc reallocarray recallocarray reallocf aligned_alloc posix_memalign memalign valloc pvalloc "
    "__libc_malloc __libc_calloc __libc_realloc __libc_reallocarray __libc_memalign __libc_valloc __libc_pvalloc "
    "__posix_memalign _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t "
    "_ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t".split()
)


@dataclass(frozen=True)
class Symbol:
    start: int
    size: int
    name: str
    source: str  # empty where it is not known
    hidden: bool  # from other files of its program or library


class _Unwarned(io.FileIO):
    """A module's file is read on demand, and ends with what reads it: nobody forgot to close it."""

    def __del__(self) -> None:
        self.close()


class _Named(io.BufferedReader):
    """No more is asked of the system than there is: a forged header may name any size, and room would be made for it first."""

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > plausible.READ_MOST:
            raise ELFError(f"damaged: {wanted} bytes of it belong together")
        return super().read(wanted)

    def __del__(self) -> None:
        self.close()  # before the file, which warns of none then


def descriptor_of(path: str | os.PathLike[str], flags: int) -> int:
    """Of a file that a process names, which may be anything: all but a regular file is not there. Nothing waits here for a pipe's other
    end, nor becomes this process's terminal."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(errno.ENOENT, "it is no regular file", os.fspath(path))
    return file


def open_named(path: str | os.PathLike[str]) -> io.BufferedReader:
    return _Named(_Unwarned(descriptor_of(path, os.O_RDONLY)))


@contextlib.contextmanager
def parsing() -> Iterator[None]:
    """Around what reads an ELF file. elftools takes a file's word for what is where, and a damaged one makes it raise anything."""
    try:
        yield
    except (ELFError, OSError, Failure):
        raise
    except Exception as error:
        raise ELFError(f"damaged ({type(error).__name__}: {error})") from error


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode(errors="surrogateescape")


def _sections(elf: ELFFile) -> Iterator[Section]:
    if elf.num_sections() > _SECTIONS_MOST:
        raise ELFError(f"{elf.num_sections()} sections")
    return elf.iter_sections()


def _symbols(elf: ELFFile) -> Iterator[Symbol]:
    """The functions, the best name of each place last; read in one go, as some libraries have a million symbols."""
    found = []
    for section in _sections(elf):
        if not isinstance(section, SymbolTableSection) or section["sh_type"] == "SHT_NOBITS":
            continue
        strings = elf.get_section(section["sh_link"]).data()
        data = section.data()
        source = ""
        for name, info, other, index, value, size in struct.iter_unpack("<IBBHQQ", data[: len(data) // 24 * 24]):
            kind = info & 15
            if kind == _FILE:
                source = _text(strings, name)
            elif kind in _FUNCTIONS and index:
                rank = _BINDINGS.get(info >> 4, 1)
                text = _text(strings, name).partition("@")[0]  # less the version, as in memcpy@GLIBC_2.2.5
                hidden = other & 3 in _HIDDEN
                of_source = source if rank == _LOCAL and not hidden else ""
                found.append((value, -rank, -len(text), text, size, of_source, hidden or rank == _LOCAL))
    found.sort()
    for value, _, _, text, size, source, hidden in found:
        yield Symbol(value, size, text, source, hidden)


def _with_sources(symbols: list[Symbol]) -> list[Symbol]:
    """With the sources of hidden symbols too, as far as local ones of one source lie around them: the linker keeps these together. But it
    sorts code that runs at the start and at the end apart, and between a source's parts puts those of others, such as main."""
    following = [""] * (len(symbols) + 1)
    for index in range(len(symbols) - 1, -1, -1):
        following[index] = symbols[index].source or following[index + 1]
    found, source = [], ""
    for index, symbol in enumerate(symbols):
        source = symbol.source or source
        may_be = symbol.hidden and not symbol.source and symbol.name != "main"
        if may_be and source and source == following[index]:
            symbol = dataclasses.replace(symbol, source=source)
        found.append(symbol)
    return found


def _build_id(elf: ELFFile) -> str:
    for section in _sections(elf):
        if isinstance(section, NoteSection) and section["sh_size"] <= _NOTES_MOST:
            for note in section.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return note["n_desc"]
    return ""


class Module:
    """One file that was mapped as code. What it cannot tell, and why, is in `problem`."""

    def __init__(
        self,
        path: str,
        build_id: str,
        code_offset: int = 0,
        debug_root: Path = DEBUG_ROOT,
        others: Iterable[str] = (),
        itself: list[str] | None = None,
    ) -> None:
        """`code_offset` is where the mapped code begins in the file, `others` are paths that it may have beside. Without a build id
        `itself` are paths of the very file, as far as that is known: other files are not to be taken for it."""
        self.problem = ""
        self.has_lines = False
        self.holds_hakmem = False
        self._complete = False  # whether it names every function
        self._segments: list[tuple[int, int, int]] = []  # offset in the file, bytes, address
        self._symbols: list[Symbol] = []
        self._sources: Sources | None = None
        self._code_offset = code_offset
        program = self._program(path, build_id, others) if build_id or itself is None else self._itself(path, itself)
        files = [elf for elf in (program, self._debug(build_id, debug_root)) if elf]
        try:
            with parsing():
                for elf in files:
                    self._read(elf)
        except (ELFError, OSError) as error:
            self.problem = f"its tables can't be read: {error}"
        self._symbols = _with_sources(sorted(self._symbols, key=lambda symbol: symbol.start))
        self._starts = [symbol.start for symbol in self._symbols]
        if not self.problem and not self._symbols:
            self.problem = "it has no symbols: stripped"
        elif not self.problem and not self._complete:
            self.problem = "stripped: it names exported functions alone"

    def _program(self, path: str, build_id: str, others: Iterable[str]) -> ELFFile | None:
        if not path.startswith("/"):
            self.problem = "it is no file"
            return None
        problems = []
        for place in (path, *(others if build_id else ())):
            elf, problem = self._opened(place, build_id)
            if elf is not None:
                self.problem = problem
                return elf
            problems.append(problem)
        self.problem = _ANOTHER if _ANOTHER in problems else problems[0]
        return None

    def _itself(self, path: str, places: list[str]) -> ELFFile | None:
        """What was told not to be another one needs no build id."""
        self.problem = _NOT_ITS_OWN if os.path.exists(path) else "it can't be opened, and has no build id to be found by elsewhere"
        for place in places:
            elf, _ = self._opened(place, "")
            if elf is not None:
                self.problem = ""
                return elf
        return None

    def _opened(self, path: str, build_id: str) -> tuple[ELFFile | None, str]:
        """The file if it may be the one, and what is wrong with it."""
        try:
            with parsing():
                elf = ELFFile(open_named(path))  # its tables are read on demand
                found = _build_id(elf)
        except OSError as error:
            return None, f"it can't be opened: {error.strerror}"
        except ELFError as error:
            return None, f"it is no program or library: {error}"
        if not build_id:
            return elf, "the snapshot has no build id to compare the file with"
        return (elf, "") if found == build_id else (None, _ANOTHER)

    def _debug(self, build_id: str, root: Path) -> ELFFile | None:
        path = root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
        try:
            if not build_id:
                return None
            with parsing():
                elf = ELFFile(open_named(path))
                if _build_id(elf) == build_id:
                    self.problem = ""
                    return elf
        except (OSError, ELFError):
            pass
        return None

    def _read(self, elf: ELFFile) -> None:
        if elf.elfclass != 64 or not elf.little_endian:
            raise ELFError("not of a 64-bit little-endian machine")
        if not self._segments:
            self._segments = [
                (self._offset_of(each), each["p_memsz"], each["p_vaddr"])
                for each in elf.iter_segments("PT_LOAD")
                if each["p_flags"] & _EXECUTABLE
            ]
        table = elf.get_section_by_name(".symtab")
        if table is not None and table["sh_type"] != "SHT_NOBITS":
            self._complete = True
        of_start = {symbol.start: symbol for symbol in self._symbols}
        for symbol in _symbols(elf):
            of_start[symbol.start] = symbol
            self.holds_hakmem = self.holds_hakmem or symbol.name == _OUR_MARK
        self._symbols = list(of_start.values())
        if self._sources is None and elf.get_section_by_name(".debug_line") is not None:
            self._sources = Sources(elf)
            self.has_lines = True

    def _offset_of(self, segment: Segment) -> int:
        """Files of debug information alone have no code, and offsets of their own; a mapping begins with a page."""
        if segment["p_filesz"]:
            return segment["p_offset"]
        return self._code_offset + segment["p_vaddr"] % _PAGE

    def _address(self, offset: int) -> int | None:
        """The address, as the file's tables have it, of what lies in the file at `offset`."""
        for start, size, address in self._segments:
            if start <= offset < start + size:
                return address + offset - start
        return None

    def symbol_at(self, offset: int) -> Symbol | None:
        """The function that lies there in the file."""
        address = self._address(offset)
        if address is None:
            return None
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        symbol = self._symbols[index]
        return symbol if address < symbol.start + symbol.size or not symbol.size else None

    def calls_at(self, offset: int) -> list[Call]:
        """The calls that were compiled into that place, the innermost first; of the last, its function's own, the name is empty. None
        where sources are not known."""
        address = self._address(offset)
        if self._sources is None or address is None:
            return []
        try:
            with parsing():
                return self._sources.calls_at(address)
        except (ELFError, OSError):
            return []  # forms that the reader does not know, or that refer to a file of their own

    def is_ours(self, symbol: Symbol) -> bool:
        """Whether the function is a part of hakmem, linked into this program."""
        return self.holds_hakmem and (
            symbol.source == _OUR_SOURCE or symbol.name in ENTRIES or symbol.name[:4] == "hak_"
        )

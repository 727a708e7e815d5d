"""Names and source lines of a program or library, from its own tables and separate debug files."""

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
_NOTES_MOST = 1 << 16  # bytes in a section
_SECTIONS_MOST = 1 << 16  # a sparse file might have any number
_FILE = 4  # STT_FILE: the local symbols after it are from that source
_BINDINGS = {1: 0, 2: 1, 0: 2}  # global, weak, local: the order of preference among names of one place
_LOCAL = _BINDINGS[0]
_HIDDEN = (1, 2)  # STV_INTERNAL, STV_HIDDEN: if the linker makes these local, they may follow another source's symbols
_ANOTHER = "the file is not the one that the process ran (the build id differs)"
_NOT_ITS_OWN = "the process mapped a file other than the one there now, and no build id tells which"
_OUR_SOURCE = "hakmem.c"
_OUR_MARK = "hak_malloc"

# The names by which a program that is linked with hakmem calls it.
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
    source: str  # empty if unknown
    hidden: bool  # not visible to other programs and libraries


class _Unwarned(io.FileIO):
    """A module's file is read on demand and closes with its reader, so Python must not warn that it was not closed."""

    def __del__(self) -> None:
        self.close()


class _Named(io.BufferedReader):
    """Limits reads to what the file has: a forged header may name any size, and that much memory would be allocated first."""

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > plausible.READ_MOST:
            raise ELFError(f"damaged: it claims to have a piece of {wanted} bytes")
        return super().read(wanted)

    def __del__(self) -> None:
        self.close()  # before the file itself, so that it does not warn


def descriptor_of(path: str | os.PathLike[str], flags: int) -> int:
    """Opens a file that a process names, which may be anything: only a regular file counts. This does not wait for a pipe's other end, and
    no terminal becomes this process's controlling one."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(errno.ENOENT, "it is not a regular file", os.fspath(path))
    return file


def open_named(path: str | os.PathLike[str]) -> io.BufferedReader:
    return _Named(_Unwarned(descriptor_of(path, os.O_RDONLY)))


@contextlib.contextmanager
def parsing() -> Iterator[None]:
    """Use around code that reads an ELF file: elftools trusts the file, and may raise any exception for a damaged one."""
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
    """The functions, with the best name of each place last. Reads a table in one step, since some libraries have a million symbols."""
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
                text = _text(strings, name).partition("@")[0]  # without the version, as in memcpy@GLIBC_2.2.5
                hidden = other & 3 in _HIDDEN
                of_source = source if rank == _LOCAL and not hidden else ""
                found.append((value, -rank, -len(text), text, size, of_source, hidden or rank == _LOCAL))
    found.sort()
    for value, _, _, text, size, source, hidden in found:
        yield Symbol(value, size, text, source, hidden)


def _with_sources(symbols: list[Symbol]) -> list[Symbol]:
    """Adds the source of hidden symbols that lie between local ones of one source, since the linker keeps a source's code together. But it
    moves code that runs at start or exit elsewhere, and may put other sources' code, such as main, between a source's parts."""
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
    """One file that was mapped as code. `problem` says what is missing, and why."""

    def __init__(
        self,
        path: str,
        build_id: str,
        code_offset: int = 0,
        debug_root: Path = DEBUG_ROOT,
        others: Iterable[str] = (),
        itself: list[str] | None = None,
    ) -> None:
        """`code_offset` is where the mapped code begins in the file; `others` are further paths that the file may have. Without a build id,
        `itself` are known paths of exactly this file, and no other file may be taken for it."""
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
            self.problem = "stripped: it names only exported functions"

    def _program(self, path: str, build_id: str, others: Iterable[str]) -> ELFFile | None:
        if not path.startswith("/"):
            self.problem = "it is not a file"
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
        """The file at one of `places`, which are known to be this file, so no build id is needed."""
        self.problem = _NOT_ITS_OWN if os.path.exists(path) else "it can't be opened, and has no build id to find it elsewhere by"
        for place in places:
            elf, _ = self._opened(place, "")
            if elf is not None:
                self.problem = ""
                return elf
        return None

    def _opened(self, path: str, build_id: str) -> tuple[ELFFile | None, str]:
        """The file, if it may be the right one, and what is wrong with it."""
        try:
            with parsing():
                elf = ELFFile(open_named(path))  # its tables are read on demand
                found = _build_id(elf)
        except OSError as error:
            return None, f"it can't be opened: {error.strerror}"
        except ELFError as error:
            return None, f"it is not a program or library: {error}"
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
            raise ELFError("not for a 64-bit little-endian machine")
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
        """The segment's offset in the program. A debug file has no code and other offsets; a mapping begins at a page."""
        if segment["p_filesz"]:
            return segment["p_offset"]
        return self._code_offset + segment["p_vaddr"] % _PAGE

    def _address(self, offset: int) -> int | None:
        """The address, by the file's tables, of the code at `offset` in the file."""
        for start, size, address in self._segments:
            if start <= offset < start + size:
                return address + offset - start
        return None

    def symbol_at(self, offset: int) -> Symbol | None:
        """The function at that offset in the file."""
        address = self._address(offset)
        if address is None:
            return None
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        symbol = self._symbols[index]
        return symbol if address < symbol.start + symbol.size or not symbol.size else None

    def calls_at(self, offset: int) -> list[Call]:
        """The calls inlined at that place, the innermost first; the last is in the function itself, and its name is empty. No calls if the
        sources are not known."""
        address = self._address(offset)
        if self._sources is None or address is None:
            return []
        try:
            with parsing():
                return self._sources.calls_at(address)
        except (ELFError, OSError):
            return []  # DWARF forms that the reader does not know, or that refer to a separate file

    def is_ours(self, symbol: Symbol) -> bool:
        """Whether the function is part of hakmem, linked into this program."""
        return self.holds_hakmem and (
            symbol.source == _OUR_SOURCE or symbol.name in ENTRIES or symbol.name[:4] == "hak_"
        )

"""Names and source lines of a program or library, from its tables and those that are kept apart from it."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection
from elftools.elf.segments import Segment

DEBUG_ROOT = Path("/usr/lib/debug")

_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_EXECUTABLE = 1  # PF_X
_PAGE = 4096
_FILE = 4  # STT_FILE: the local symbols after it are of that source
_BINDINGS = {1: 0, 2: 1, 0: 2}  # global, weak, local: which of the names of one place to take
_OUR_SOURCE = "hakmem.c"
_OUR_MARK = "hak_malloc"

# The names by which a program calls hakmem when it is linked with it.
ENTRIES = frozenset(
    "malloc calloc realloc reallocarray recallocarray reallocf aligned_alloc posix_memalign memalign valloc pvalloc "
    "__libc_malloc __libc_calloc __libc_realloc __libc_reallocarray __libc_memalign __libc_valloc __libc_pvalloc "
    "__posix_memalign _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t "
    "_ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t".split()
)


@dataclass(slots=True, frozen=True)
class Symbol:
    start: int
    size: int
    name: str
    source: str  # empty where it is not known


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode(errors="replace")


def _symbols(elf: ELFFile) -> Iterator[Symbol]:
    """The functions, the best name of each place last; read in one go, as some libraries have a million symbols."""
    found = []
    for section in elf.iter_sections():
        if not isinstance(section, SymbolTableSection) or section["sh_type"] == "SHT_NOBITS":
            continue
        strings = elf.get_section(section["sh_link"]).data()
        data = section.data()
        source = ""
        for name, info, _, index, value, size in struct.iter_unpack("<IBBHQQ", data[: len(data) // 24 * 24]):
            kind = info & 15
            if kind == _FILE:
                source = _text(strings, name)
            elif kind in _FUNCTIONS and index:
                rank = _BINDINGS.get(info >> 4, 1)
                text = _text(strings, name).partition("@")[0]  # less the version, as in memcpy@GLIBC_2.2.5
                found.append((value, -rank, -len(text), text, size, source if rank == 2 else ""))
    found.sort()
    for value, _, _, text, size, source in found:
        yield Symbol(value, size, text, source)


def _with_sources(symbols: list[Symbol]) -> list[Symbol]:
    """With the sources of global symbols too, as far as local ones of one source lie around them: the linker keeps these together."""
    following = [""] * (len(symbols) + 1)
    for index in range(len(symbols) - 1, -1, -1):
        following[index] = symbols[index].source or following[index + 1]
    found, source = [], ""
    for index, symbol in enumerate(symbols):
        source = symbol.source or source
        if not symbol.source and source and source == following[index]:
            symbol = Symbol(symbol.start, symbol.size, symbol.name, source)
        found.append(symbol)
    return found


def _build_id(elf: ELFFile) -> str:
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return note["n_desc"]
    return ""


class _Lines:
    """Source lines from DWARF; a unit's table is read when an address of the unit is asked for."""

    def __init__(self, elf: ELFFile) -> None:
        self._dwarf = elf.get_dwarf_info(follow_links=False)
        self._ranges = self._dwarf.get_aranges()
        self._bounds: list[tuple[int, int, int]] | None = None
        self._of_unit: dict[int, tuple[list[int], list[tuple[str, int]]]] = {}

    def at(self, address: int) -> tuple[str, int]:
        unit = self._ranges.cu_offset_at_addr(address) if self._ranges else None
        if unit is None:
            unit = self._unit_at(address)
        if unit is None:
            return "", 0
        if unit not in self._of_unit:
            self._of_unit[unit] = self._table(unit)
        starts, places = self._of_unit[unit]
        index = bisect.bisect_right(starts, address) - 1
        return places[index] if index >= 0 else ("", 0)

    def _unit_at(self, address: int) -> int | None:
        """By the bounds of the units themselves, where nobody wrote a table of them (clang)."""
        if self._bounds is None:
            self._bounds = []
            for unit in self._dwarf.iter_CUs():
                attributes = unit.get_top_DIE().attributes
                if "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
                    low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
                    end = high.value if high.form == "DW_FORM_addr" else low + high.value
                    self._bounds.append((low, end, unit.cu_offset))
        return next((offset for low, end, offset in self._bounds if low <= address < end), None)

    def _table(self, offset: int) -> tuple[list[int], list[tuple[str, int]]]:
        program = self._dwarf.line_program_for_CU(self._dwarf.get_CU_at(offset))
        if program is None:
            return [], []
        base = 0 if program["version"] >= 5 else 1  # files are counted from it
        names = [entry.name.decode(errors="replace") for entry in program["file_entry"]]
        folders = [folder.decode(errors="replace") for folder in program["include_directory"]]
        files = []
        for entry, name in zip(program["file_entry"], names, strict=True):
            index = entry.dir_index - base
            files.append(f"{folders[index]}/{name}" if 0 <= index < len(folders) and name[:1] != "/" else name)
        rows = []
        for entry in program.get_entries():
            state = entry.state
            if state is not None:
                known = not state.end_sequence and 0 <= state.file - base < len(files)
                rows.append(
                    (state.address, not state.end_sequence, files[state.file - base] if known else "", state.line)
                )
        rows.sort(key=lambda row: row[:2])  # where one sequence ends and another begins, the latter
        return [row[0] for row in rows], [(file, line if file else 0) for _, _, file, line in rows]


class Module:
    """One file that was mapped as code. What it cannot tell, and why, is in `problem`."""

    def __init__(self, path: str, build_id: str, code_offset: int = 0, debug_root: Path = DEBUG_ROOT) -> None:
        """`code_offset` is where the mapped code begins in the file."""
        self.problem = ""
        self.has_lines = False
        self.holds_hakmem = False
        self._complete = False  # whether it names every function
        self._segments: list[tuple[int, int, int]] = []  # offset in the file, bytes, address
        self._symbols: list[Symbol] = []
        self._lines: _Lines | None = None
        self._code_offset = code_offset
        program = self._program(path, build_id)
        files = [elf for elf in (program, self._debug(build_id, debug_root)) if elf]
        try:
            for elf in files:
                self._read(elf)
        except (ELFError, DWARFError, ValueError, KeyError, struct.error) as error:
            self.problem = f"its tables can't be read: {error}"
        self._symbols = _with_sources(sorted(self._symbols, key=lambda symbol: symbol.start))
        self._starts = [symbol.start for symbol in self._symbols]
        if not self.problem and not self._symbols:
            self.problem = "it has no symbols: stripped"
        elif not self.problem and not self._complete:
            self.problem = "stripped: it names exported functions alone"

    def _program(self, path: str, build_id: str) -> ELFFile | None:
        try:
            if not path.startswith("/"):
                self.problem = "it is no file"
                return None
            elf = ELFFile(open(path, "rb"))  # noqa: SIM115, its tables are read on demand
            found = _build_id(elf)
        except OSError as error:
            self.problem = f"it can't be opened: {error.strerror}"
            return None
        except ELFError:
            self.problem = "it is no program or library"
            return None
        if not build_id:
            self.problem = "the snapshot has no build id to compare the file with"
        elif found != build_id:
            self.problem = "the file is another one than the process ran (the build id differs)"
            return None
        return elf

    def _debug(self, build_id: str, root: Path) -> ELFFile | None:
        path = root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
        try:
            if not build_id or not path.is_file():
                return None
            elf = ELFFile(open(path, "rb"))  # noqa: SIM115
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
        if self._lines is None and elf.get_section_by_name(".debug_line") is not None:
            self._lines = _Lines(elf)
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

    def line_at(self, offset: int) -> tuple[str, int]:
        """The source file and the line; empty where that is not known."""
        address = self._address(offset)
        if self._lines is None or address is None:
            return "", 0
        try:
            return self._lines.at(address)
        except (DWARFError, ELFError, AttributeError, KeyError, IndexError, ValueError):
            return "", 0  # forms that the reader does not know, or that refer to a file of their own

    def is_ours(self, symbol: Symbol) -> bool:
        """Whether the function is a part of hakmem, linked into this program."""
        return self.holds_hakmem and (
            symbol.source == _OUR_SOURCE or symbol.name in ENTRIES or symbol.name[:4] == "hak_"
        )

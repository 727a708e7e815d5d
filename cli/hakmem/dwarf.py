"""Source positions of addresses: the line, and the inlined calls."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.common.exceptions import DWARFError
from elftools.dwarf.die import DIE
from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile

_BLOCKS = ("DW_TAG_inlined_subroutine", "DW_TAG_lexical_block")
_LINKAGE_NAMES = ("DW_AT_linkage_name", "DW_AT_MIPS_linkage_name")
_SCOPES = ("DW_TAG_namespace", "DW_TAG_class_type", "DW_TAG_structure_type", "DW_TAG_union_type")
_ORIGINS = ("DW_AT_abstract_origin", "DW_AT_specification")


@dataclass(frozen=True)
class Call:
    name: str  # as in the tables
    file: str
    line: int


def _text(die: DIE, attribute: str) -> str:
    return die.attributes[attribute].value.decode(errors="surrogateescape") if attribute in die.attributes else ""


def _scoped(die: DIE) -> str:
    """The name with its scopes, as C++ writes it."""
    names = [_text(die, "DW_AT_name")]
    while (die := die.get_parent()) is not None and die.tag in _SCOPES:
        names.append(_text(die, "DW_AT_name") or "(anonymous namespace)")
    return "::".join(reversed(names))


def _name(die: DIE) -> str:
    """The function's name, from its declaration if that is elsewhere."""
    for _ in range(4):
        linkage = next((_text(die, name) for name in _LINKAGE_NAMES if name in die.attributes), "")
        if linkage:
            return linkage
        origin = next((each for each in _ORIGINS if each in die.attributes), None)
        if origin is None:
            break
        die = die.get_DIE_from_attribute(origin)
    return _scoped(die)


def _children(die: DIE) -> Iterator[DIE]:
    """The children, each of which must follow the last: in a damaged file a sibling may lead back, in an endless loop."""
    before = die.offset
    for child in die.iter_children():
        if child.offset <= before:
            raise DWARFError("entries that lead in a circle")
        before = child.offset
        yield child


class Sources:
    """DWARF's data on addresses; a unit's tables are read when an address in the unit is first looked up."""

    def __init__(self, elf: ELFFile) -> None:
        self._dwarf = elf.get_dwarf_info(follow_links=False)
        self._ranges = self._dwarf.get_aranges()
        self._range_lists = self._dwarf.range_lists()
        self._bounds: list[tuple[int, int, int]] | None = None
        self._of_unit: dict[int, tuple[list[int], list[tuple[str, int]]]] = {}
        self._files: dict[int, tuple[list[str], int]] = {}
        self._functions: dict[int, list[tuple[int, int, DIE]]] = {}

    def calls_at(self, address: int) -> list[Call]:
        """The calls inlined at that place, the innermost first; the last is in the function itself, and its name is empty."""
        unit = self._ranges.cu_offset_at_addr(address) if self._ranges else None
        if unit is None:
            unit = self._unit_at(address)
        if unit is None:
            return []
        if unit not in self._of_unit:
            self._of_unit[unit] = self._table(unit)
        starts, places = self._of_unit[unit]
        index = bisect.bisect_right(starts, address) - 1
        file, line = places[index] if index >= 0 else ("", 0)
        calls = []
        for die in reversed(self._inlined_at(unit, address)):
            calls.append(Call(_name(die), file, line))
            file = self._file(unit, die.attributes["DW_AT_call_file"].value)
            line = die.attributes["DW_AT_call_line"].value
        return [*calls, Call("", file, line)] if calls or file else []

    def _unit_at(self, address: int) -> int | None:
        """Finds the unit by the units' own bounds, if the compiler wrote no table of them (clang)."""
        if self._bounds is None:
            self._bounds = []
            for unit in self._dwarf.iter_CUs():
                attributes = unit.get_top_DIE().attributes
                if "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
                    low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
                    end = high.value if high.form == "DW_FORM_addr" else low + high.value
                    self._bounds.append((low, end, unit.cu_offset))
        return next((offset for low, end, offset in self._bounds if low <= address < end), None)

    # ---- lines ----

    def _file(self, unit: int, number: int) -> str:
        files, base = self._files[unit]
        return files[number - base] if 0 <= number - base < len(files) else ""

    def _table(self, unit: int) -> tuple[list[int], list[tuple[str, int]]]:
        self._files[unit] = [], 0
        program = self._dwarf.line_program_for_CU(self._dwarf.get_CU_at(unit))
        if program is None:
            return [], []
        base = 0 if program["version"] >= 5 else 1  # the number of the first file
        names = [entry.name.decode(errors="surrogateescape") for entry in program["file_entry"]]
        folders = [folder.decode(errors="surrogateescape") for folder in program["include_directory"]]
        files = []
        for entry, name in zip(program["file_entry"], names):
            index = entry.dir_index - base
            files.append(f"{folders[index]}/{name}" if 0 <= index < len(folders) and name[:1] != "/" else name)
        self._files[unit] = files, base
        rows = []
        for entry in program.get_entries():
            state = entry.state
            if state is not None:
                file = "" if state.end_sequence else self._file(unit, state.file)
                rows.append((state.address, not state.end_sequence, file, state.line))
        rows.sort(key=lambda row: row[:2])  # where one sequence ends and another begins, the latter counts
        return [row[0] for row in rows], [(file, line if file else 0) for _, _, file, line in rows]

    # ---- inlined functions ----

    def _ranges_of(self, die: DIE) -> list[tuple[int, int]]:
        if "DW_AT_ranges" in die.attributes:
            base = die.cu.get_top_DIE().attributes.get("DW_AT_low_pc")
            start = base.value if base else 0
            found = []
            for each in self._range_lists.get_range_list_at_offset(die.attributes["DW_AT_ranges"].value, cu=die.cu):
                if isinstance(each, BaseAddressEntry):
                    start = each.base_address
                else:
                    of = 0 if each.is_absolute else start
                    found.append((of + each.begin_offset, of + each.end_offset))
            return found
        if "DW_AT_low_pc" not in die.attributes or "DW_AT_high_pc" not in die.attributes:
            return []
        low, high = die.attributes["DW_AT_low_pc"].value, die.attributes["DW_AT_high_pc"]
        return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]

    def _functions_of(self, die: DIE) -> Iterator[tuple[int, int, DIE]]:
        for child in _children(die):
            if child.tag == "DW_TAG_subprogram":
                for low, high in self._ranges_of(child):
                    yield low, high, child
            elif child.tag == "DW_TAG_namespace":
                yield from self._functions_of(child)

    def _inlined_at(self, unit: int, address: int) -> list[DIE]:
        """The inlined calls at the address, the outermost first."""
        if unit not in self._functions:
            self._functions[unit] = list(self._functions_of(self._dwarf.get_CU_at(unit).get_top_DIE()))
        inside = next((die for low, high, die in self._functions[unit] if low <= address < high), None)
        found = []
        while inside is not None:
            inside = next((each for each in _children(inside) if self._holds(each, address)), None)
            if inside is not None and inside.tag == "DW_TAG_inlined_subroutine":
                found.append(inside)
        return found

    def _holds(self, die: DIE, address: int) -> bool:
        return die.tag in _BLOCKS and any(low <= address < high for low, high in self._ranges_of(die))

"""Resolves a snapshot's addresses to functions and source lines, and reports what could not be resolved."""

from __future__ import annotations

import bisect
import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError

from hakmem import places
from hakmem.calls import Calls
from hakmem.demangling import is_cxx, plain
from hakmem.dwarf import Call
from hakmem.elf import DEBUG_ROOT, Module, open_named
from hakmem.names import lines_of, printable
from hakmem.snapshots import Mapping, Snapshot

JIT_FOLDER = Path("/tmp")
_JIT_MOST = 1 << 28  # bytes

_OUR_LIBRARY = "libhakmem"
_MOST_OURS = 16  # the most calls within hakmem, counted from the one that records the stack
_NO_MAPPINGS = "the process could not read its own mappings (no /proc in its root?)"
CLOSED = 1 << 62  # libraries that the process has closed are at this address and above
VIRTUAL = ("[vdso]", "[vsyscall]")  # the kernel's mappings, not files

# What lies between an allocator and the code that wanted the memory.
_PLUMBING_FILES = re.compile(r"(libc(-[0-9.]+)?|libstdc\+\+|libc\+\+)\.so(\.|$) | libc\.musl- | ld-(linux|musl)", re.VERBOSE)
_PLUMBING = (
    "operator new", "std::", "__gnu_cxx::", "hak::", "g_malloc", "g_realloc", "g_slice_", "xmalloc", "xrealloc", "xcalloc",
    "PyMem_", "PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc", "_PyMem_", "_PyObject_Malloc", "_PyObject_Realloc",
    "__rust_", "__rustc::", "__rdl_", "__rg_",
)  # fmt: skip
# By C++'s mangled name, since the plain name of a template begins with its return type.
_PLUMBING_CXX = re.compile(r"_ZZ*( nw | na | (N[rVK]*[RO]?)? (S[tabsiod] | 9__gnu_cxx | 3hak\d))", re.VERBOSE)
_CRATES = ("alloc", "core", "std", "hashbrown", "hakmem")
_BARE_CRATES = ("alloc::", "hashbrown::")  # these names may also be C++ namespaces
_TYPE = re.compile(r"[&*\[(]* (?:(?:mut|const|dyn)\ )* (?P<first>\w*) (?P<path>::)?", re.VERBOSE)
# Rust's own functions by their source files: most are inlined, and an inlined function may have only the last part of its name.
_PLUMBING_SOURCES = re.compile(
    r"/library/(alloc|core|std)/src/ | /hashbrown-[^/]+/src/ | /hakmem(-[0-9.]+)?/src/block\.rs$", re.VERBOSE
)


def clean(name: str) -> str:
    """The name as valid Unicode, which formats require; file names may not be that."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _is_of_crates(path: str) -> bool:
    """Whether the type or trait is from Rust's own crates; those without a path, such as usize, belong to the language."""
    found = _TYPE.match(path)
    return found is not None and (found["first"] in _CRATES if found["path"] else bool(found["first"]))


def _is_rusts_own(function: str) -> bool:
    """Whether the function is from Rust's own crates: the owner of either part of `<TYPE as TRAIT>::function` may have written it."""
    if not function.startswith("<"):
        return function.startswith(_BARE_CRATES)
    depth, at = 0, 0
    for at, letter in enumerate(function):
        depth += (letter == "<") - (letter == ">" and function[at - 1] != "-")
        if depth == 0:
            return _is_of_crates(function[1:at])
        if depth == 1 and function.startswith(" as ", at):
            return _is_of_crates(function[1:at]) and _is_of_crates(function[at + 4 :])
    return False


@dataclass(frozen=True)
class Frame:
    """A call on a stack."""

    address: int  # in the calling instruction: one less than the return address
    mapping: Mapping | None
    symbol: str  # as in the tables; empty if they have none
    function: str  # demangled
    file: str
    line: int
    inlined: bool = False  # the compiler inlined it into the next frame

    @property
    def name(self) -> str:
        """The function, or otherwise the place in its file."""
        if self.function:
            return printable(self.function)
        if self.mapping is None:
            return f"0x{self.address:x}"
        offset = self.address - self.mapping.start + self.mapping.offset
        return f"{printable(self.mapping.name) or 'memory'}+0x{offset:x}"

    @property
    def place(self) -> str:
        return f"{printable(self.file.rpartition('/')[2])}:{self.line}" if self.file else ""

    @property
    def plumbing(self) -> bool:
        if self.mapping is not None and _PLUMBING_FILES.match(self.mapping.name):
            return True
        if is_cxx(self.symbol):
            return _PLUMBING_CXX.match(self.symbol) is not None
        return (
            self.function.startswith(_PLUMBING)
            or _is_rusts_own(self.function)
            or _PLUMBING_SOURCES.search(self.file) is not None
        )


def _passing(frames: list[Frame]) -> int:
    """How many of the innermost calls only pass memory on; 0 if all do."""
    return next((index for index, frame in enumerate(frames) if not frame.plumbing), 0)


def addresses(frames: Iterable[Frame]) -> Iterator[list[Frame]]:
    """The frames of each address: inlined ones together with the frame that they are inlined into."""
    together: list[Frame] = []
    for frame in frames:
        together.append(frame)
        if not frame.inlined:
            yield together
            together = []


class _Jit:
    """Functions made at run time, from perf's map, which interpreters write if requested."""

    def __init__(self, at: places.Jit) -> None:
        """Reads the first of the files that exists and may be the process's."""
        self.file = at.files[0]
        self.refused: list[str] = []  # files that were refused, and why
        self._functions: list[tuple[int, int, str]] = []
        for file in at.files:
            with contextlib.suppress(OSError, ELFError), open_named(file) as found:  # anybody can write files there
                if problem := at.problem(os.fstat(found.fileno())):
                    self.refused.append(f"{file}: not used for names: {problem}")
                    continue
                self._read(os.fsdecode(found.read(_JIT_MOST)))
                break
        self._functions.sort(key=lambda each: each[0])
        self._starts = [start for start, _, _ in self._functions]

    def _read(self, text: str) -> None:
        for line in lines_of(text):
            with contextlib.suppress(ValueError):
                start, size, name = line.split(None, 2)
                self._functions.append((int(start, 16), int(size, 16), name))

    def name(self, address: int) -> str:
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return ""
        start, size, name = self._functions[index]
        return name if address < start + size else ""


class Symbols:
    """The frames of a snapshot's addresses; a file is opened when an address in it is first looked up."""

    def __init__(self, snapshot: Snapshot, debug_root: Path = DEBUG_ROOT, jit_folder: Path = JIT_FOLDER) -> None:
        self._snapshot = snapshot
        self._mappings = sorted(snapshot.mappings, key=lambda mapping: mapping.start)
        self._starts = [mapping.start for mapping in self._mappings]
        self._debug_root = debug_root
        self._jit_folder = jit_folder
        self._jit: _Jit | None = None
        self._modules: dict[tuple[str, str], Module] = {}
        program = snapshot.program_mapping
        self._program = program.path if program else ""
        self._frames: dict[int, list[Frame]] = {}  # by return address
        self._ours: dict[int, bool | None] = {}  # by return address, too
        self._outside: dict[int, int] = {}  # by site
        self._asked: Counter[Mapping] = Counter()  # how many addresses in each were looked up
        self._nameless: Counter[Mapping] = Counter()  # how many of these are in no function
        self._nowhere = 0

    def _mapping(self, address: int) -> Mapping | None:
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._mappings[index].end:
            return None
        return self._mappings[index]

    def module(self, mapping: Mapping) -> Module:
        key = (mapping.path, mapping.build_id)
        if key not in self._modules:
            process, id_ = self._snapshot.process, mapping.build_id
            others = places.of_code(process, mapping)
            itself = None if id_ else places.itself(process, mapping)
            self._modules[key] = Module(mapping.path, id_, mapping.offset, self._debug_root, others, itself)
        return self._modules[key]

    def _calls(self, returns_to: int) -> list[Frame]:
        """The call at that address, after those inlined into it, the innermost first."""
        if returns_to not in self._frames:
            self._frames[returns_to] = self._look_up(returns_to)
        return self._frames[returns_to]

    def _look_up(self, returns_to: int) -> list[Frame]:
        address = max(0, returns_to - 1)  # the call may be the last instruction of its function
        mapping = self._mapping(address)
        if mapping is None or not mapping.path.startswith("/"):
            if self._jit is None:
                self._jit = _Jit(places.of_jit(self._snapshot, self._jit_folder))
            name = self._jit.name(address)
            if not name and mapping is not None and mapping.path in VIRTUAL:
                name = mapping.path
            self._nowhere += not name
            return [Frame(address, mapping, name, name, "", 0)]
        module = self.module(mapping)
        symbol = module.symbol_at(address - mapping.start + mapping.offset)
        self._asked[mapping] += 1
        if symbol is None:
            self._nameless[mapping] += 1
            return [Frame(address, mapping, "", "", "", 0)]
        *inlined, last = module.calls_at(address - mapping.start + mapping.offset) or [Call("", "", 0)]
        frames = [Frame(address, mapping, each.name, plain(each.name), each.file, each.line, True) for each in inlined]
        return [*frames, Frame(address, mapping, symbol.name, plain(symbol.name), last.file, last.line)]

    def _is_ours(self, returns_to: int) -> bool | None:
        """Whether the address is in hakmem itself; None if the program contains hakmem, but has no name for the address. This does
        not resolve the whole frame, since it is called for all sites, and source lines take long."""
        if returns_to not in self._ours:
            mapping = self._mapping(returns_to - 1)
            found: bool | None = mapping is not None and mapping.name.startswith(_OUR_LIBRARY)
            if mapping is not None and not found and mapping.path == self._program:
                module = self.module(mapping)
                if module.holds_hakmem:
                    symbol = module.symbol_at(returns_to - 1 - mapping.start + mapping.offset)
                    found = None if symbol is None else module.is_ours(symbol)
            self._ours[returns_to] = found
        return self._ours[returns_to]

    def outside(self, site: int) -> int:
        """The site of the call into hakmem. If hakmem is linked with the program, its own calls are on the stack too, the innermost ones.
        The search ends at the first call that is not hakmem's, since hakmem also calls functions of the program, which may allocate.
        Calls without a name may precede one that is known to be hakmem's, as in a program with only exported names."""
        found = self._outside.get(site)
        if found is None:
            found = at = site
            for _ in range(_MOST_OURS):
                if at not in self._snapshot.sites:
                    break
                at, address = self._snapshot.sites[at]
                ours = self._is_ours(address)
                if ours:
                    found = at
                elif ours is False or found != site:
                    break
            self._outside[site] = found
        return found

    def stack(self, site: int) -> list[Frame]:
        """The site's calls, the innermost first."""
        return [frame for address in self._snapshot.stack(site) for frame in self._calls(address)]

    def wanting(self, site: int) -> list[Frame]:
        """The stack from the call that wanted the memory, without the calls that only pass it on."""
        frames = self.stack(site)
        return frames[_passing(frames) :]

    def calls(self, site: int) -> Calls:
        """The whole stack by name."""
        frames = self.stack(site)
        return Calls([(frame.name, frame.place) for frame in frames], _passing(frames))

    def _missing(self, mapping: Mapping) -> str:
        """Says how many names are missing. A few may be in any file, such as libc's code to which signal handlers return."""
        missing, asked = self._nameless[mapping], self._asked[mapping]
        if missing == asked:
            return "its tables have no function at any of the addresses"
        return f"its tables have no function at {missing:,} of {asked:,} addresses"

    def _nowhere_text(self, jit: _Jit) -> str:
        one = self._nowhere == 1
        if not any(mapping.start < CLOSED for mapping in self._mappings):
            return f"{self._nowhere} {'address has' if one else 'addresses have'} no name: {_NO_MAPPINGS}"
        where = "1 address is" if one else f"{self._nowhere} addresses are"
        return f"{where} in no file: perhaps generated at run time ({jit.file} would name {'it' if one else 'them'})"

    def remarks(self) -> list[str]:
        """What is not known of the memory and of the addresses that were looked up, and why."""
        said = [self._snapshot.untold] if self._snapshot.untold else []
        for mapping in sorted(self._nameless, key=lambda mapping: mapping.path):
            problem = self.module(mapping).problem or self._missing(mapping)
            said.append(f"{mapping.path}: {problem}")
        for (path, _), module in self._modules.items():
            if "build id" in module.problem and not any(mapping.path == path for mapping in self._nameless):
                said.append(f"{path}: {module.problem}")
        said += self._jit.refused if self._jit is not None else []
        if self._nowhere and self._jit is not None:
            said.append(self._nowhere_text(self._jit))
        return [printable(each) for each in dict.fromkeys(said)]

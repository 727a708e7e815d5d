"""The memory of another process, or of a core: read from outside, without the process's participation."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from hakmem import others, plausible
from hakmem.elf import open_named, parsing
from hakmem.errors import Failure
from hakmem.names import kernel_lines
from hakmem.plausible import Damaged
from hakmem.snapshots import Mapping, is_snapshot

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PIECE = 64 << 20  # the most bytes of one read
_ELF = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_SEGMENT = struct.Struct(
    "<IIQQQQQQ"
)  # type, flags, offset, address, physical address, bytes in the file and in memory, alignment
PT_LOAD, _PT_NOTE = 1, 4
_AT_PAGESZ, _AT_ENTRY, _AT_SYSINFO_EHDR = 6, 9, 33
_BUILD_ID = 3  # NT_GNU_BUILD_ID
_NOTES_MOST = 1 << 16
_EXECUTABLE = 1
_START = 4096  # bytes that show what a file is
_VDSO = "[vdso]"
_KERNEL = 1 << 63


_readv = ctypes.CDLL(None, use_errno=True).process_vm_readv
_readv.argtypes = [ctypes.c_int, *[ctypes.c_void_p, ctypes.c_ulong] * 2, ctypes.c_ulong]
_readv.restype = ctypes.c_ssize_t
_IOV_MOST = 1024
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)  # by a sandbox that refuses the system call


_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_SCOPES = {1: "allows only root, and whoever started it", 2: "allows only root", 3: "allows nobody until the next boot"}


class Refused(Failure):
    """A process that may not be read; `why` is the message without the ways out."""

    def __init__(self, name: str, why: str, ways: list[str]) -> None:
        self.why = f"{name}: may not be read: {why}"
        itself = "start it by `hakmem run --profile FILE`, or with HAKMEM_PROFILE=FILE, and it writes a snapshot itself when it ends"
        super().__init__(f"{self.why}. Ways out: " + "; ".join([*ways, itself]))


def _window_ways(folder: Path) -> list[str]:
    """Suggests the window (hakmem.window) if this user may follow the links to the process's open files; listing them may need less."""
    try:
        os.readlink(folder / "fd" / os.listdir(folder / "fd")[0])
    except (OSError, IndexError):
        return []
    return ["start it with HAKMEM_WINDOW=1, and hakmem profile, resident, top and metrics read its window"]


def yama_scope() -> int:
    try:
        return int(kernel_lines(_YAMA)[0])
    except (OSError, ValueError, IndexError):
        return 0


def refused(name: str, folder: Path) -> Refused:
    """Why the kernel refuses, in the order of its own checks: users, what the process has asked for, Yama, rights."""
    try:
        of_users = next(line for line in kernel_lines(folder / "status") if line.startswith("Uid:"))
        users = {int(word) for word in of_users.split()[1:4]}
        owner = (folder / "status").stat().st_uid  # the folder's own owner remains the process's user
    except (OSError, ValueError, StopIteration):
        users, owner = {os.geteuid()}, os.geteuid()
    scope = yama_scope()
    root = "run this as root (CAP_SYS_PTRACE)"
    if users != {os.geteuid()}:
        return Refused(name, "it belongs to another user", [root])
    if owner not in users:
        reasons = "prctl(PR_SET_DUMPABLE, 0), a change of user, or a program file that it may not read"
        return Refused(name, f"it is closed to its own user, by {reasons}", [root])
    if scope:
        why = f"Yama {_SCOPES[scope]}" if scope in _SCOPES else "Yama forbids it"
        ways = [] if scope == 3 else [root, "allow its user by sysctl kernel.yama.ptrace_scope=0"]
        if scope == 1:
            ways.append("call prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY) in the program")
        return Refused(name, f"{why} (kernel.yama.ptrace_scope is {scope})", ways + _window_ways(folder))
    why = "it has privileges that this command lacks, or is in another namespace"
    return Refused(name, why, [root, *_window_ways(folder)])


class Unreadable(Exception):
    """Memory that can't be read: it is not mapped, or not in the core."""


@contextlib.contextmanager
def whole(memory: Memory) -> Iterator[None]:
    """Use around code that needs everything it reads, and computes with it."""
    absurd = "its heap can't be true, or changed while it was read" if memory.live else memory.cut or "its heap can't be true"
    try:
        with np.errstate(all="ignore"), plausible.reading(memory.name, absurd):
            yield
    except Unreadable as error:
        gone = "it ended, or became another program, while it was read"
        why = gone if memory.live else memory.cut or f"the core lacks what lies at {error}"
        raise Failure(f"{memory.name}: {why}", plausible.EXIT_CODE if memory.cut else 1) from None


@dataclass(frozen=True)
class Area:
    """A mapping of the process."""

    start: int
    end: int
    flags: str  # as in /proc/PID/maps; in a core as its headers say
    offset: int
    path: str  # a file's path, or a name in brackets; empty for anonymous memory
    line: str = ""  # of /proc/PID/maps

    @property
    def size(self) -> int:
        return self.end - self.start


class Memory:
    """What processes and cores share: reads by address, and what is mapped where."""

    name = ""
    process = 0
    time = 0
    live = False  # the memory may change while it is read
    page_size = _PAGE
    cut = ""  # the message for a core that lacks its end

    def __init__(self) -> None:
        self.areas: list[Area] = []
        self.bytes_read = 0

    def read_into(self, buffer: np.ndarray, address: int) -> None:
        raise NotImplementedError

    def read(self, address: int, size: int) -> np.ndarray:
        """The bytes; raises Unreadable if some are missing."""
        plausible.room(self.name, size)
        buffer = np.empty(size, np.uint8)
        if size:
            self.read_into(buffer, address)
        self.bytes_read += size
        return buffer

    def gather(self, addresses: np.ndarray, sizes: list[int]) -> np.ndarray:
        """A row of bytes for each row of addresses: what lies there, in order and, as far as possible, from a single moment."""
        raise NotImplementedError

    def write(self, address: int, data: bytes) -> None:
        raise NotImplementedError

    def bytes_at(self, address: int, size: int) -> bytes:
        return self.read(address, size).tobytes()

    def refresh(self) -> None:
        """Reads the mappings and the time anew."""

    def now_ms(self) -> int | None:
        """The process's monotonic clock; None if unknown."""
        return None

    def stack_pointers(self) -> list[int | None]:
        """The threads' stack pointers; None for a thread with an unknown stack."""
        return []

    def program(self) -> int:
        """The entry point at which the kernel started it: in its code, or in the loader's if that was the command; 0 if unknown."""
        return 0

    def area_at(self, address: int) -> Area | None:
        return next((area for area in self.areas if area.start <= address < area.end), None)

    # ---- ELF files in memory ----

    def segments_at(self, start: int) -> list[tuple[int, ...]]:
        """The program headers of the program or library that begins at `start`; none if they can't be read."""
        try:
            header = self.bytes_at(start, 64)
            if header[:6] != _ELF:
                return []
            offset, (size, count) = struct.unpack_from("<Q", header, 32)[0], struct.unpack_from("<HH", header, 54)
            if size != _SEGMENT.size:
                return []
            table = self.bytes_at(start + offset, size * count)
            return [_SEGMENT.unpack_from(table, size * index) for index in range(count)]
        except (Unreadable, struct.error):
            return []

    def notes_at(self, start: int) -> Iterator[tuple[str, int, int, bytes]]:
        """Names, types, addresses and contents of the notes of the program or library at `start`."""
        segments = self.segments_at(start)
        first = min((each[3] - each[2] for each in segments if each[0] == PT_LOAD), default=0)
        for kind, _, _, address, _, bytes_, _, align in segments:
            if kind == _PT_NOTE and bytes_ <= _NOTES_MOST:
                with contextlib.suppress(Unreadable, struct.error):
                    yield from self._notes(start - first + address, bytes_, 8 if align == 8 else 4)

    def _notes(self, start: int, size: int, align: int) -> Iterator[tuple[str, int, int, bytes]]:
        data, at = self.bytes_at(start, size), 0
        while at + 12 <= size:
            name_size, content_size, kind = struct.unpack_from("<III", data, at)
            content = at + 12 + -(-name_size // align) * align
            name = data[at + 12 : at + 12 + name_size].rstrip(b"\0").decode(errors="replace")
            yield name, kind, start + content, data[content : content + content_size]
            at = content + -(-content_size // align) * align

    def _parts_in_place(self, path: str, start: int) -> int:
        """How many parts of a program or library lie where they would if it were loaded at `start`."""
        loads = [each for each in self.segments_at(start) if each[0] == PT_LOAD]
        bias = start - min((each[3] for each in loads), default=0) // self.page_size * self.page_size
        found = 0
        for _, flags, offset, address, *_ in loads:
            area = self.area_at(bias + address)
            if area is not None and area.path == path and area.offset - area.start == offset - address - bias:
                found += 1 + (flags & _EXECUTABLE != 0 and "x" in area.flags)
        return found

    def images(self) -> Iterator[tuple[str, int]]:
        """The path and start of each mapped file. A file may also be mapped only for reading, as by symbolizers, or be loaded twice."""
        starts: dict[str, list[int]] = {}
        for area in self.areas:
            if area.offset == 0 and (area.path.startswith("/") or area.path == _VDSO):
                starts.setdefault(area.path, []).append(area.start)
        for path, several in starts.items():
            parts = [self._parts_in_place(path, start) for start in several] if len(several) > 1 else [0]
            yield from ((path, start) for start, count in zip(several, parts) if count == max(parts))

    def files(self) -> dict[str, int]:
        """The start of each mapped file by its path; the lower one if it is loaded twice."""
        return dict(reversed([*self.images()]))

    def build_id(self, path: str) -> str:
        start = self.files().get(path)
        if start is None:
            return ""
        notes = self.notes_at(start)
        return next((content.hex() for name, kind, _, content in notes if (name, kind) == ("GNU", _BUILD_ID)), "")

    def mappings(self) -> list[Mapping]:
        """The mappings of code, as in snapshots."""
        ids: dict[str, str] = {}
        found = []
        for area in self.areas:
            if "x" in area.flags:
                if area.path not in ids:
                    ids[area.path] = self.build_id(area.path)
                found.append(Mapping(area.start, area.end, area.offset, area.path, ids[area.path]))
        return found


def parse_maps(lines: Iterable[str]) -> list[Area]:
    areas = []
    for line in lines:
        words = line.split(None, 5)
        start, end = (int(word, 16) for word in words[0].split("-"))
        path = words[5] if len(words) > 5 else ""
        areas.append(Area(start, end, words[1], int(words[2], 16), path, line))
    return areas


def _words_by_number(auxv: bytes) -> dict[int, int]:
    """The auxiliary vector, which the kernel passed to the process at its start."""
    return dict(struct.iter_unpack("<QQ", auxv[: len(auxv) // 16 * 16]))


def _clock_offset_ms(folder: Path) -> int:
    """How far the process's monotonic clock is ahead of this one's, since it may be in another time namespace."""
    itself = Path("/proc/self")
    try:
        if os.readlink(folder / "ns/time") == os.readlink(itself / "ns/time"):
            return 0
        return _monotonic_ms(folder) - _monotonic_ms(itself)
    except (OSError, ValueError, StopIteration):  # a kernel without time namespaces, or one that does not show them
        return 0


def _monotonic_ms(folder: Path) -> int:
    """The offset of its children's time namespace, which is its own unless it has just created another."""
    words = next(line.split() for line in kernel_lines(folder / "timens_offsets") if line.startswith("monotonic"))
    seconds, nanoseconds = map(int, words[1:3])
    return seconds * 1000 + nanoseconds // 1_000_000


def _state(folder: Path) -> str:
    """The kernel's letter for its state; empty if it no longer exists."""
    with contextlib.suppress(OSError, IndexError):
        return " ".join(kernel_lines(folder / "stat")).rpartition(")")[2].split()[0]
    return ""


def _has_ended(task: Path) -> bool:
    return _state(task) in ("", "Z", "X")


def expect_proc() -> None:
    """Fails if processes can't be seen at all, so that none is reported as missing then."""
    if not Path("/proc/self").exists():
        raise Failure("/proc is not mounted here: processes can't be seen without it")


def folder_of(process: int) -> Path:
    """The process's folder in /proc. If the first thread has ended, that shows nothing, and another thread's folder is used."""
    folder = Path("/proc") / str(process)
    if folder.exists() and _has_ended(folder):
        with contextlib.suppress(OSError):
            return next((task for task in sorted((folder / "task").iterdir()) if not _has_ended(task)), folder)
    return folder


def is_stopped(process: int) -> bool:
    """Whether the process is stopped, by a signal or a debugger."""
    return _state(folder_of(process)) in ("T", "t")


class Process(Memory):
    """A running process, through /proc/PID/mem: as its user if nothing forbids it, or with CAP_SYS_PTRACE."""

    live = True

    def __init__(self, process: int) -> None:
        super().__init__()
        self.process = process
        self._gathers = True
        self.name = f"process {process}"
        self.folder = folder_of(process)
        try:
            self.refresh()
            self._file = os.open(self.folder / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            expect_proc()
            raise Failure(f"{self.name}: no such process") from None
        except PermissionError:
            raise refused(self.name, self.folder) from None
        except OSError as error:
            raise Failure(f"{self.name}: {error.strerror}") from None
        self._ahead_ms = _clock_offset_ms(self.folder)

    def refresh(self) -> None:
        self.time = int(time.time())
        self.areas = parse_maps(kernel_lines(self.folder / "maps"))

    def program(self) -> int:
        try:
            return _words_by_number((self.folder / "auxv").read_bytes()).get(_AT_ENTRY, 0)
        except OSError:
            return 0

    def close(self) -> None:
        os.close(self._file)

    def read_into(self, buffer: np.ndarray, address: int) -> None:
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view):
            try:
                count = os.preadv(self._file, [view[done : done + _PIECE]], address + done)
            except (OSError, OverflowError):
                count = 0
            if count <= 0:
                raise Unreadable(f"{address + done:#x}")
            done += count

    def write(self, address: int, data: bytes) -> None:
        """Writes to the memory of the process."""
        try:
            with open(self.folder / "mem", "r+b", buffering=0) as file:
                file.seek(address)
                file.write(data)
        except OSError as error:
            raise Failure(f"{self.name}: its memory can't be written to: {error.strerror}") from None

    def gather(self, addresses: np.ndarray, sizes: list[int]) -> np.ndarray:
        """Uses one system call for some hundred rows, or one for each place if that call is refused."""
        plausible.room(self.name, len(addresses) * sum(sizes))
        found = np.empty((len(addresses), sum(sizes)), np.uint8)
        parts = np.empty((*addresses.shape, 2), np.uint64)
        parts[:, :, 0], parts[:, :, 1] = addresses, sizes
        rows = max(1, _IOV_MOST // len(sizes))
        for first in range(0, len(addresses), rows):
            remote, local = parts[first : first + rows], found[first : first + rows]
            if not (self._gathers and self._gather(remote, local)):
                self._gather_singly(remote, local)
        return found

    def _gather(self, remote: np.ndarray, local: np.ndarray) -> bool:
        """False if the kernel or a sandbox refuses the call itself, as it then always will."""
        into = np.array([local.ctypes.data, local.nbytes], np.uint64)
        count = _readv(int(self.folder.name), into.ctypes.data, 1, remote.ctypes.data, remote.shape[0] * remote.shape[1], 0)
        if count == local.nbytes:
            return True
        if count < 0 and ctypes.get_errno() in _REFUSALS:
            self._gathers = False
            return False
        raise Unreadable(f"some of {remote.shape[0]} places")

    def _gather_singly(self, remote: np.ndarray, local: np.ndarray) -> None:
        for places, row in zip(remote.tolist(), local):
            at = 0
            for address, size in places:
                self.read_into(row[at : at + size], address)
                at += size

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._ahead_ms

    def stack_pointers(self) -> list[int | None]:
        """For a running or runnable thread the kernel shows no stack pointer. The first thread's stack is known by its name."""
        found: list[int | None] = []
        for task in (Path("/proc") / str(self.process) / "task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = " ".join(kernel_lines(task / "syscall")).split()
                if words != ["running"]:
                    found += [int(word, 16) for word in words[-2:-1]]
                elif int(task.name) != self.process:
                    found.append(None)
        return found


class Core(Memory):
    """A core: what the kernel or gcore wrote of a process."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.name = path
        self.time = max(0, int(Path(path).stat().st_mtime))
        self._parts: list[tuple[int, int, int]] = []  # start and end address, offset in the file
        self._stacks: list[int] = []
        self._vdso = self._program = 0
        try:
            with parsing(), open_named(path) as file:
                self._data = np.memmap(path, np.uint8, "r")
                self._read(ELFFile(file))
        except (ELFError, OSError) as error:
            raise Damaged(path, self.cut or f"the core can't be read: {error}") from None

    def _read(self, elf: ELFFile) -> None:
        files: list[Area] = []
        areas = []
        self._see_end(elf)
        for segment in elf.iter_segments():
            if segment["p_type"] == "PT_NOTE":
                for note in segment.iter_notes():
                    self._read_note(note, files)
            elif segment["p_type"] == "PT_LOAD":
                start, flags = segment["p_vaddr"], segment["p_flags"]
                held = min(segment["p_filesz"], max(0, len(self._data) - segment["p_offset"]))
                self._parts.append((start, start + held, segment["p_offset"]))
                text = "".join(letter if flags & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
                areas.append(Area(start, start + segment["p_memsz"], text + "p", 0, ""))
        self._parts.sort()
        named = {(file.start, file.end): file for file in files}
        for area in areas:
            file = named.pop((area.start, area.end), None) or next(
                (file for file in files if file.start <= area.start and area.end <= file.end), None
            )
            if file is not None:
                area = replace(area, offset=file.offset + area.start - file.start, path=file.path)
            elif area.start == self._vdso or area.start >= _KERNEL:
                area = replace(area, path=_VDSO if area.start == self._vdso else "[vsyscall]")
            self.areas.append(area)
        self.areas += named.values()  # files that are not in the core at all: their flags are not known
        self.areas.sort(key=lambda area: area.start)
        self.areas = [self._flagged(area) if area in named.values() else area for area in self.areas]

    def program(self) -> int:
        return self._program

    def _see_end(self, elf: ELFFile) -> None:
        """Notes whether the core is cut: the kernel stops at a full disk or at its limit, and systemd-coredump at its own limit."""
        self._tell_cut(elf["e_phoff"] + elf["e_phnum"] * elf["e_phentsize"])
        self._tell_cut(max((segment["p_offset"] + segment["p_filesz"] for segment in elf.iter_segments()), default=0))

    def _tell_cut(self, wanted: int) -> None:
        if wanted > len(self._data):
            self.cut = f"the core is cut short: it has {len(self._data)} of at least {wanted} bytes"

    def _flagged(self, area: Area) -> Area:
        """The area, with flags by the file's own headers if these are in the core."""
        start = self.files().get(area.path, area.start)
        segments = self.segments_at(start)
        loads = [each for each in segments if each[0] == PT_LOAD]
        # By address: the same part of a file may be mapped twice, once as a hole that nobody can read.
        bias = start - min((each[3] for each in loads), default=0) // self.page_size * self.page_size
        code = [(bias + each[3], bias + each[3] + each[6]) for each in loads if each[1] & _EXECUTABLE]
        is_code = any(first < area.end and area.start < end for first, end in code)
        return area if is_code or not segments else replace(area, flags="r--p")

    def _read_note(self, note, files: list[Area]) -> None:
        content = note["n_desc"]
        if note["n_type"] == "NT_PRPSINFO":
            self.process = content["pr_pid"]
        elif note["n_type"] == "NT_FILE":
            for entry, name in zip(content["Elf_Nt_File_Entry"], content["filename"]):
                offset = entry["page_offset"] * content["page_size"]
                path = name.decode(errors="surrogateescape") if isinstance(name, bytes) else name
                files.append(Area(entry["vm_start"], entry["vm_end"], "r-xp", offset, path))
        elif note["n_type"] == "NT_AUXV":
            told = _words_by_number(note["n_descdata"])
            self.page_size = plausible.page_size(self.name, told.get(_AT_PAGESZ, self.page_size))
            self._vdso = told.get(_AT_SYSINFO_EHDR, 0)
            self._program = told.get(_AT_ENTRY, 0)
        elif note["n_type"] == "NT_PRSTATUS":
            self._stacks += _stack_pointer(note["n_descdata"])

    def read_into(self, buffer: np.ndarray, address: int) -> None:
        view, at, end = buffer.view(np.uint8).reshape(-1), address, address + buffer.nbytes
        for start, stop, offset in self._parts:
            if start <= at < stop:
                taken = min(end, stop) - at
                view[at - address : at - address + taken] = self._data[
                    offset + at - start : offset + at - start + taken
                ]
                at += taken
                if at == end:
                    return
        raise Unreadable(f"{at:#x}")

    def gather(self, addresses: np.ndarray, sizes: list[int]) -> np.ndarray:
        starts, stops, offsets = (np.array(column, np.uint64) for column in zip(*self._parts))
        plausible.room(self.name, len(addresses) * sum(sizes))
        found = []
        for column, size in zip(addresses.T, sizes):
            part = np.searchsorted(starts, column, "right") - 1
            if ((part < 0) | (column + np.uint64(size) > stops[part])).any():
                raise Unreadable("some places")
            found.append(
                self._data[(column - starts[part] + offsets[part])[:, None] + np.arange(size, dtype=np.uint64)]
            )
        return np.concatenate(found, axis=1)

    def stack_pointers(self) -> list[int | None]:
        return list(self._stacks)

    def find(self, words: bytes) -> Iterator[int]:
        """Addresses of these bytes that are multiples of 16, the smallest parts first."""
        for start, stop, offset in sorted(self._parts, key=lambda part: part[1] - part[0]):
            part = memoryview(self._data)[offset : offset + stop - start]
            for piece in range(0, len(part), _PIECE):
                data, at = bytes(part[piece : piece + _PIECE + len(words)]), -1
                while (at := data.find(words, at + 1)) >= 0:
                    if (start + piece + at) % 16 == 0:
                        yield start + piece + at


# The offset of the stack pointer in the kernel's elf_prstatus, where the registers begin at 112.
_STACK_POINTER = {336: 112 + 19 * 8, 392: 112 + 31 * 8}  # by the structure's size: x86-64's, aarch64's


def _stack_pointer(status: bytes) -> list[int]:
    at = _STACK_POINTER.get(len(status))
    return [struct.unpack_from("<Q", status, at)[0]] if at else []


def is_core(start: bytes) -> bool:
    """Whether a file with this beginning is a core."""
    return start[:6] == _ELF and start[16:18] == b"\x04\x00"


def open_memory(target: str) -> Process | Core | bytes:
    """Opens a process by its number or a core by its path; for any other file returns its content. That may be a pipe, so it is read once.

    A file with a number as its name counts as a file only if it is a snapshot or a core, or no process has that number.
    """
    if target.isdecimal() and not Path(target).is_file():
        return Process(int(target))
    try:
        with open(target, "rb") as file:
            start = file.read(_START)
            if is_snapshot(start):
                return start + file.read()
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise Failure(f"{target}: {error.strerror}") from None
    if what := others.what_is(start):
        raise Damaged(target, what)
    if not is_core(start):
        return Process(int(target)) if target.isdecimal() and Path(f"/proc/{int(target)}").exists() else start
    if not is_regular:
        raise Failure(f"{target}: reading a core takes random access, which a pipe does not allow: write it to a file")
    return Core(target)

"""Where a process's files may be found besides their paths: the process may have another root or other mounts, as in a container, and a
file may be deleted or replaced.

A process that has taken the number of an ended one is recognized by its mappings, or by the build ids of the files.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hakmem.names import kernel_lines
from hakmem.snapshots import Mapping, Snapshot

_DELETED = " (deleted)"
_START_TIME = 19  # the word of /proc/PID/stat after the name
_CLOCKS_APART = 2.0  # seconds: the clock may be corrected meanwhile, and some file systems store even seconds only
_LINE_FEED = "\\012"  # as the kernel writes one in a path of /proc/PID/maps


def _paths(mapping: Mapping) -> list[str]:
    """The paths that the kernel's name for the file may mean."""
    paths = [mapping.path]
    if mapping.path.endswith(_DELETED):  # or the name really ends so
        paths.append(mapping.path.removesuffix(_DELETED))
    if _LINE_FEED in mapping.path:  # or the name really contains that, which the kernel writes in the same way
        paths += [path.replace(_LINE_FEED, "\n") for path in paths]
    return paths


def of_code(process: int, mapping: Mapping) -> Iterator[str]:
    """Further paths of the file that was mapped. Any of these may lead to another file."""
    paths = _paths(mapping)
    yield from paths[1:]
    if process:
        yield from (_in_root(process, path) for path in paths)
        yield from (_exe(process), _map_file(process, mapping))


def _in_root(process: int, path: str) -> str:
    return f"/proc/{process}/root{path}"


def _exe(process: int) -> str:
    return f"/proc/{process}/exe"


def _map_file(process: int, mapping: Mapping) -> str:
    """The link to the mapped file; following it takes more rights than the other paths."""
    return f"/proc/{process}/map_files/{mapping.start:x}-{mapping.end:x}"


def itself(process: int, mapping: Mapping) -> list[str] | None:
    """Paths of exactly the file that a process has mapped, which then needs no build id. None if the process has ended, or another one has
    its number."""
    try:
        words = next(filter(lambda words: _is_of(words, mapping), _maps(process)))
    except (OSError, StopIteration):
        return None
    device, number = words[3:5]
    found = [_map_file(process, mapping)]
    with contextlib.suppress(OSError):
        if os.readlink(_exe(process)) == mapping.path:
            found.append(_exe(process))
    for path in _paths(mapping):
        # On some file systems, such as btrfs and overlayfs, the device differs here. A mapped file's number is not given to another file.
        if _identity(_in_root(process, path))[1] == number:
            found.append(_in_root(process, path))
        if _identity(path) == (device, number):
            found.append(path)
    return found


def _maps(process: int) -> Iterator[list[str]]:
    return (line.split(None, 5) for line in kernel_lines(f"/proc/{process}/maps"))


def _is_of(words: list[str], mapping: Mapping) -> bool:
    """Whether these words of a line of maps belong to the mapping."""
    span = f"{mapping.start:08x}-{mapping.end:08x}"
    return words[0] == span and words[5:] == [mapping.path] and int(words[2], 16) == mapping.offset


def _identity(path: str) -> tuple[str, str]:
    """The device and the inode number, as in /proc/PID/maps."""
    try:
        status = os.stat(path)
    except OSError:
        return "", ""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino)


def _runs(snapshot: Snapshot) -> bool:
    """Whether the snapshot's process still runs, and has that number here."""
    first = next((each for each in snapshot.mappings if each.path.startswith("/")), None)
    if first is None or not snapshot.process:
        return False
    span = f"{first.start:08x}-{first.end:08x} "
    return any(
        line.startswith(span) and line.endswith(first.path) for line in kernel_lines(f"/proc/{snapshot.process}/maps")
    )


@dataclass(frozen=True)
class Jit:
    """Where the map of code that a process makes at run time may be, the most likely place first; for a running process also its start time
    and users."""

    files: list[Path]
    since: float | None = None
    users: frozenset[int] = frozenset()

    def problem(self, status: os.stat_result) -> str:
        """Why a file there can't be the process's; empty if it may be. Anybody may have written it, and process numbers are reused."""
        if self.since is None:
            return ""
        if status.st_uid not in self.users:
            return "its owner is not the process's user"
        return "it was written before the process began" if status.st_mtime < self.since - _CLOCKS_APART else ""


def of_jit(snapshot: Snapshot, folder: Path) -> Jit:
    """The process names its map by the number that it sees for itself, and writes it in its own folder."""
    seen = folder / f"perf-{snapshot.process}.map"
    try:
        if not _runs(snapshot):
            return Jit([seen])
        told = dict(line.split(":", 1) for line in kernel_lines(f"/proc/{snapshot.process}/status") if ":" in line)
        number = told.get("NSpid", "").split()[-1:] or [str(snapshot.process)]
        users = frozenset({0, *map(int, told["Uid"].split())})
        since = _began(snapshot.process)
        own = Path(f"/proc/{snapshot.process}/root{folder}")
        if number == [str(snapshot.process)] and os.path.samefile(own, folder):
            return Jit([seen], since, users)
        return Jit([own / f"perf-{number[0]}.map", seen], since, users)
    except (OSError, IndexError, KeyError, ValueError):  # it has ended, or may not be read
        return Jit([seen])


def _began(process: int) -> float:
    """When it began, by the clock of file times."""
    ticks = int(" ".join(kernel_lines(f"/proc/{process}/stat")).rpartition(")")[2].split()[_START_TIME])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")

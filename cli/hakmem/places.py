"""Where a process's files may be found, and not only by their paths: it may have another root or other mounts, as in a container, and a file
may be deleted or have another one in its place.

A process that has taken the number of an ended one is told by its mappings, or by the build id of the files.
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
_START_TIME = 19  # of /proc/PID/stat behind the name
_CLOCKS_APART = 2.0  # seconds: a clock that is set right meanwhile, and file systems that count in twos
_LINE_FEED = "\\012"  # as the kernel writes one within a path of /proc/PID/maps


def _paths(mapping: Mapping) -> list[str]:
    """What the kernel's name for the file may stand for."""
    paths = [mapping.path]
    if mapping.path.endswith(_DELETED):  # or it is called that
        paths.append(mapping.path.removesuffix(_DELETED))
    if _LINE_FEED in mapping.path:  # or it is called that, which the kernel writes in the same way
        paths += [path.replace(_LINE_FEED, "\n") for path in paths]
    return paths


def of_code(process: int, mapping: Mapping) -> Iterator[str]:
    """Of the file that was mapped, beside its path: any of these may be of another one."""
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
    """Which wants more rights than all else."""
    return f"/proc/{process}/map_files/{mapping.start:x}-{mapping.end:x}"


def itself(process: int, mapping: Mapping) -> list[str] | None:
    """Where the very file is that a process has mapped, which needs no build id then. None where the process does not run any more, or
    another one has its number."""
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
        # Of some file systems, as btrfs and overlayfs, the device is another one here. No number is another file's while one has it mapped.
        if _identity(_in_root(process, path))[1] == number:
            found.append(_in_root(process, path))
        if _identity(path) == (device, number):
            found.append(path)
    return found


def _maps(process: int) -> Iterator[list[str]]:
    return (line.split(None, 5) for line in kernel_lines(f"/proc/{process}/maps"))


def _is_of(words: list[str], mapping: Mapping) -> bool:
    """Whether these of a line of maps are the mapping's."""
    span = f"{mapping.start:08x}-{mapping.end:08x}"
    return words[0] == span and words[5:] == [mapping.path] and int(words[2], 16) == mapping.offset


def _identity(path: str) -> tuple[str, str]:
    """The device and the number, as /proc/PID/maps has them."""
    try:
        status = os.stat(path)
    except OSError:
        return "", ""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino)


def _runs(snapshot: Snapshot) -> bool:
    """Whether it is of a process that still runs, and is seen here by that number."""
    first = next((each for each in snapshot.mappings if each.path.startswith("/")), None)
    if first is None or not snapshot.process:
        return False
    span = f"{first.start:08x}-{first.end:08x} "
    return any(
        line.startswith(span) and line.endswith(first.path) for line in kernel_lines(f"/proc/{snapshot.process}/maps")
    )


@dataclass(frozen=True)
class Jit:
    """Where the map may be of what a process makes at run time, the most likely place first; and of one that runs since when it does, and
    whose it is."""

    files: list[Path]
    since: float | None = None
    users: frozenset[int] = frozenset()

    def problem(self, status: os.stat_result) -> str:
        """Why a file there can't be the process's; empty where it may be: anybody may have written one, and numbers come again."""
        if self.since is None:
            return ""
        if status.st_uid not in self.users:
            return "it is another user's than the process"
        return "it was written before the process began" if status.st_mtime < self.since - _CLOCKS_APART else ""


def of_jit(snapshot: Snapshot, folder: Path) -> Jit:
    """It has written its map with the number that it has itself, and to its own folder."""
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
    except (OSError, IndexError, KeyError, ValueError):  # it has ended, or may not be looked into
        return Jit([seen])


def _began(process: int) -> float:
    """When, by the clock that files have."""
    ticks = int(" ".join(kernel_lines(f"/proc/{process}/stat")).rpartition(")")[2].split()[_START_TIME])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")

"""Where a process's files may be found, and not only by their paths: it may have another root or other mounts, as in a container, and a file
may be deleted or have another one in its place.

A process that has taken the number of an ended one is told by its mappings, or by the build id of the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hakmem.names import kernel_lines
from hakmem.snapshots import Mapping, Snapshot

_DELETED = " (deleted)"
_LINE_FEED = "\\012"  # as the kernel writes one within a path of /proc/PID/maps


def of_code(process: int, mapping: Mapping) -> Iterator[str]:
    """Of the file that was mapped, beside its path: any of these may be of another one."""
    paths = [mapping.path]
    if mapping.path.endswith(_DELETED):  # or it is called that
        paths.append(mapping.path.removesuffix(_DELETED))
    if _LINE_FEED in mapping.path:  # or it is called that, which the kernel writes in the same way
        paths += [path.replace(_LINE_FEED, "\n") for path in paths]
    yield from paths[1:]
    if process:
        for path in paths:
            yield f"/proc/{process}/root{path}"
        yield f"/proc/{process}/map_files/{mapping.start:x}-{mapping.end:x}"


def _runs(snapshot: Snapshot) -> bool:
    """Whether it is of a process that still runs, and is seen here by that number."""
    first = next((each for each in snapshot.mappings if each.path.startswith("/")), None)
    if first is None or not snapshot.process:
        return False
    span = f"{first.start:08x}-{first.end:08x} "
    return any(
        line.startswith(span) and line.endswith(first.path) for line in kernel_lines(f"/proc/{snapshot.process}/maps")
    )


def of_jit(snapshot: Snapshot, folder: Path) -> list[Path]:
    """Of the map of what it makes at run time, the most likely place first. It has written that with the number that it has itself, and
    to its own folder."""
    seen = folder / f"perf-{snapshot.process}.map"
    try:
        if not _runs(snapshot):
            return [seen]
        lines = kernel_lines(f"/proc/{snapshot.process}/status")
        numbers = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [str(snapshot.process)])
        own = Path(f"/proc/{snapshot.process}/root{folder}")
        if numbers[-1] == str(snapshot.process) and os.path.samefile(own, folder):
            return [seen]
        return [own / f"perf-{numbers[-1]}.map", seen]
    except (OSError, IndexError):  # it has ended, or may not be looked into
        return [seen]

"""Windows: the reports of a process that may not be traced (HAKMEM_WINDOW=1; src/entry/blackbox.c).

A window is a file without a name among the descriptors of one thread of the process, and has the format of a black box. Opening it takes
the right to see what the process has mapped and open, which Yama leaves to its user; tracing takes more.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from hakmem import blackbox, elf, memory, resident, snapshots
from hakmem.blackbox import Box
from hakmem.memory import Refused
from hakmem.resident import Table
from hakmem.snapshots import Snapshot

_LINK = "/memfd:hakmem-window (deleted)"
_FILES = 16  # the thread has fewer, numbered from 0; other threads may have thousands
_MOST_BYTES = 1 << 20
_PATIENCE = 1.0  # seconds; the thread checks every tenth of a second, if it runs
_LOOK = 0.02


def _open(process: int) -> int | None:
    with contextlib.suppress(OSError):
        for task in (Path("/proc") / str(process) / "task").iterdir():
            for number in range(_FILES):
                file = task / "fd" / str(number)
                with contextlib.suppress(OSError):
                    if os.readlink(file) == _LINK:
                        return elf.descriptor_of(file, os.O_RDWR)
    return None


def _newest(file: int, name: str) -> tuple[Box, int]:
    """The box, and the number of its newest entry; -1 if it has none yet."""
    box = blackbox.parse(os.pread(file, _MOST_BYTES, 0), name)
    return box, box.entries[0].number if box.entries else -1


def snapshot(process: int, refused: Refused) -> Snapshot:
    """The process's current report, or its last one if it is not running; raises `refused` if it has no window."""
    file = _open(process)
    if file is None:
        raise refused
    name = f"window of process {process}"
    try:
        box, before = _newest(file, name)
        if box.ask_at:
            os.pwrite(file, os.urandom(8), box.ask_at)
        deadline, number = time.monotonic() + _PATIENCE, before
        while number <= before and time.monotonic() < deadline:
            time.sleep(_LOOK)
            box, number = _newest(file, name)
    except OSError:
        raise refused from None
    finally:
        os.close(file)
    taken = snapshots.parse(box.newest.text.decode(errors="surrogateescape"), name)
    taken.window_age = max(0.0, time.time() - box.newest.time)
    return taken


def table_of(process: int, pinned: bool) -> tuple[Table, Snapshot]:
    """As resident.of_memory, or by the window if the process may not be traced."""
    try:
        source = memory.Process(process)
    except Refused as refused:
        taken = snapshot(process, refused)
        return resident.of_snapshot(taken), taken
    with contextlib.closing(source):
        return resident.of_memory(source, pinned)

"""Reads from outside what a process counts while it is armed, and arms it from there.

Two words of a process, which src/entry/descriptor.c names, may be written from outside: the time until which it is armed, and a request to
give back what it can. It sees them on its next slow path, so a process that makes no call does not notice.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hakmem import allocations
from hakmem.errors import Failure
from hakmem.memory import Memory, folder_of, whole
from hakmem.names import kernel_lines
from hakmem.snapshots import Allocations, Counted, Snapshot

if TYPE_CHECKING:
    from hakmem.outside import Reader

_LONGER = 5  # more seconds armed, for this tool's own work; if it is killed, arming ends by itself
_SEEN_WITHIN = 0.2  # seconds within which threads that allocate have usually started to count
_LOOK = 0.02
_ALWAYS = (1 << 64) - 1
_HEAPS_MOST = 1 << 20

ARMED = "event.until_ms"
_WANTED, _DONE = "request.wanted", "request.done"


# ---- what was counted ----


def heaps(reader: Reader) -> Iterator[np.ndarray]:
    """The bytes of each heap's record."""
    names, seen = reader.names, set()
    at, size = names.field("heap.next")
    address = names.number(names.place("heaps"))
    while address and address not in seen and len(seen) < _HEAPS_MOST:
        seen.add(address)
        data = reader.memory.read(address, names.field("heap")[1])
        yield data
        address = int(data[at : at + size].view(np.uint64)[0])


def _counted(reader: Reader) -> dict[int, Counted]:
    names = reader.names
    groups, classes = reader.value("event.groups"), len(reader.classes)
    counts = reader.memory.read(names.place("event.others"), 16 * groups).view(np.uint64).reshape(2, groups).copy()
    at, size = names.field("heap.counted")
    for data in heaps(reader):
        counts[:, :classes] += data[at : at + size].view(np.uint64).reshape(2, classes)
    sizes = [each.size for each in reader.classes]
    return {
        group: Counted(sizes[group] if group < classes else 0, objects, held)
        for group, (objects, held) in enumerate(counts.T.tolist())
        if objects
    }


def _sums(record: np.void, bits: int) -> Allocations:
    return Allocations(int(record["events"]), int(record["objects"]) >> bits, int(record["bytes"]))


def _events(reader: Reader) -> dict[tuple[int, int], Allocations]:
    names, bits = reader.names, reader.value("event.object_bits")
    address = names.number(names.place("event.rows"))
    if not address:
        return {}
    fields = {name: names.field(f"event.{name}") for name in ("events", "objects", "bytes")}
    fields["key"] = names.field("event_row.key")
    dtype = np.dtype(
        {
            "names": list(fields),
            "formats": [f"<u{size}" for _, size in fields.values()],
            "offsets": [at for at, _ in fields.values()],
            "itemsize": names.field("event_row")[1],
        }
    )
    rows = reader.memory.read(address, reader.value("event.rows_most") * dtype.itemsize).view(dtype)
    found = rows[(rows["key"] != 0) & (rows["events"] != 0)]
    return {(int(row["key"]) >> 32, (int(row["key"]) & 0xFFFFFFFF) - 1): _sums(row, bits) for row in found}


def _by_site(reader: Reader) -> dict[int, Allocations]:
    names, chunk = reader.names, reader.value("site.chunk")
    record, found = names.record("event", ["events", "objects", "bytes"]), {}
    bits = reader.value("event.object_bits")
    count = min(names.number(names.place("site.count"), 4), reader.value("site.most"))
    chunks = reader.memory.read(names.place("event.chunks"), 8 * -(-count // chunk)).view(np.uint64)
    for index, address in enumerate(chunks.tolist()):
        if not address:
            continue
        sums = reader.memory.read(address, chunk * record.itemsize).view(record)
        for within in np.flatnonzero(sums["events"]).tolist():
            found[index * chunk + within] = _sums(sums[within], bits)
    return found


def _armed_seconds(reader: Reader) -> float:
    """How long it remains armed; 0 for a core, and for a library that can't be armed."""
    now = reader.memory.now_ms()
    if now is None or ARMED not in reader.names.places:
        return 0.0
    until = _armed_until(reader)
    return math.inf if until == _ALWAYS else max(0, until - now) / 1000


def read(reader: Reader, into: Snapshot) -> None:
    """Reads what was counted while the process was armed; older libraries count nothing, or only by site."""
    into.armed = _armed_seconds(reader)
    if "event.chunks" in reader.names.places:
        into.allocated = _by_site(reader)
    if "event.rows" in reader.names.places:
        into.events = _events(reader)
        into.counted = _counted(reader)


# ---- arming ----


def _now(reader: Reader) -> int:
    now = reader.memory.now_ms()
    if now is None:
        raise Failure(f"{reader.memory.name}: only a running process can be asked for this")
    return now


def _armed_until(reader: Reader) -> int:
    return reader.names.number(reader.names.place(ARMED))


def _arm(reader: Reader, until: int) -> None:
    reader.memory.write(reader.names.place(ARMED), until.to_bytes(8, "little"))


def counting(reader: Reader) -> tuple[int, int]:
    """How many threads with a heap count, and how many there are; both 0 for an older library, which does not show this."""
    names = reader.names
    if "heap.watched" not in names.fields:
        return 0, 0
    (state_at, _), (watched_at, _) = names.field("heap.state"), names.field("heap.watched")
    attached = reader.value("heap.attached")
    watched = [
        bool(data[watched_at])
        for data in heaps(reader)
        if int(data[state_at : state_at + 4].view(np.uint32)[0]) == attached
    ]
    return sum(watched), len(watched)


def _wait_for_threads(reader: Reader, within: float) -> tuple[int, int]:
    end = time.monotonic() + within
    while True:
        found = counting(reader)
        if found[0] == found[1] or time.monotonic() >= end:
            return found
        time.sleep(_LOOK)


class _Armed:
    """A process that counts at least until our time, while other tools may arm it too."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._ours = self._theirs = 0  # the time written last, and the one before it

    def _raise(self, least: int) -> None:
        found = _armed_until(self._reader)
        if found < least:
            if found != self._ours:
                self._theirs = found
            self._ours = least
            _arm(self._reader, least)

    def again(self, seconds: float) -> None:
        """Arms it for so long from now, plus this tool's own time; does nothing if it is armed for longer already."""
        self._raise(_now(self._reader) + round(1000 * (seconds + _LONGER)))

    def wait(self, seconds: float) -> float:
        """Waits for so long, or until someone disarms it; returns the seconds. If someone arms it for less, it is armed again meanwhile."""
        self.again(seconds)
        least, start = _now(self._reader) + round(1000 * seconds), time.monotonic()
        while (passed := time.monotonic() - start) < seconds:
            found = _armed_until(self._reader)
            if not found:
                return max(_LOOK, round(passed, 2))
            if found < least:
                self._raise(least + 1000 * _LONGER)
            time.sleep(min(_LOOK, seconds - passed))
        return seconds

    def end(self) -> None:
        """Leaves it as others want it: keeps what they wrote since, or restores what they wrote before if that time is still to come."""
        if self._ours and _armed_until(self._reader) == self._ours:
            _arm(self._reader, self._theirs if self._theirs > _now(self._reader) else 0)


@contextlib.contextmanager
def armed(reader: Reader, seconds: float) -> Iterator[_Armed]:
    """Makes the process count what it allocates, by a time written to its memory, until which it counts."""
    holder = _Armed(reader)
    try:
        holder.again(seconds)
        yield holder
    finally:
        holder.end()


def watch(memory: Memory, seconds: float) -> Snapshot:
    """The snapshot after so much time, with what the process allocated in that time, and without what it counted before.

    If someone disarms the process meanwhile, this covers the time until then, and `seconds` says how long that was.
    """
    from hakmem.outside import Reader

    with whole(memory):
        reader = Reader(memory)
        _now(reader)
        with armed(reader, seconds) as holder:
            _wait_for_threads(reader, min(seconds, _SEEN_WITHIN))
            before = reader.snapshot()
            counted = holder.wait(seconds)
        memory.refresh()  # libraries may have been loaded or unloaded
        taken = reader.snapshot(pinned=True)
    allocations.since(before, taken)
    taken.seconds = counted
    return taken


def arm(memory: Memory, seconds: float) -> str:
    """Arms it from now on, without waiting for the end; 0 disarms it. Returns a message."""
    from hakmem.outside import Reader

    with whole(memory):
        reader = Reader(memory)
        now = _now(reader)
        if _armed_until(reader) == _ALWAYS:
            return "already counting, permanently (HAKMEM_EVENTS)"
        _arm(reader, now + round(1000 * seconds) if seconds else 0)
        if not seconds:
            return "no longer counting"
        seen, threads = _wait_for_threads(reader, _SEEN_WITHIN)
    text = f"counting allocations for {seconds:g} s"
    if seen < threads:
        text += f"; {threads - seen} of {threads} threads have not seen that yet: they will when any of them takes a slow path"
    if not reader.knows_stacks():
        text += "; callers are not recorded (HAKMEM_INSIGHT=0, or the secure library), so all will be (unknown)"
    return text


# ---- collecting ----


def collect(memory: Memory, seconds: float) -> bool:
    """Asks the process to give back what it can. False if it made no call within that time; the request is then withdrawn."""
    from hakmem.outside import Reader

    with whole(memory):
        names = Reader(memory).names
        wanted, done = names.place(_WANTED), names.place(_DONE)
        if memory.now_ms() is None:
            raise Failure(f"{memory.name}: only a running process can be asked for this")
        before = names.number(done)
        number = names.number(wanted)
        if number == before:  # otherwise someone has already requested the same
            number = (before + 1) % (1 << 64)
            memory.write(wanted, number.to_bytes(8, "little"))
        end = time.monotonic() + seconds
        while names.number(done) != number:
            if time.monotonic() >= end:
                if names.number(wanted) == number:
                    memory.write(wanted, before.to_bytes(8, "little"))
                return False
            time.sleep(_LOOK)
    return True


def resident_bytes(process: int) -> int | None:
    """The bytes of its resident set, which the kernel counts in batches; None if it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(kernel_lines(folder_of(process) / "statm")[0].split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None

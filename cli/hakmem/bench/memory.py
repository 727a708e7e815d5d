"""The resident set of a process and its descendants while it runs: its mean over time, and what is left at the end.

Pages that several processes share are counted once, by the kernel's Pss, which divides each among the processes.
To add this up the kernel walks the page tables, so a run that is watched is not timed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

INTERVAL = 0.02
_SHORTEST = 0.001
_KEPT = 40  # samples of a run that are kept for a plot
_SHARE = (
    10  # a pause is a tenth of the time so far, if that is less than INTERVAL, but at least ten times as long as the last sample took
)


def below(pid: int) -> Iterator[int]:
    """The descendants of `pid`."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                    yield int(child)
                    yield from below(int(child))


def _resident_kib(pid: int) -> int:
    """0 for a process that has ended; its whole resident set if Pss can't be read, as for another user's process."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except PermissionError:
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") // 1024
    except OSError:
        pass
    return 0


def _course(totals: list[tuple[float, int]]) -> list[list[float]]:
    """Seconds since the first sample, and KiB: the highest value of each stretch of time, so that no peak is lost."""
    begun, ended = totals[0][0], totals[-1][0]
    highest: dict[int, tuple[float, int]] = {}
    for at, kib in totals:
        stretch = int((at - begun) / (ended - begun) * (_KEPT - 1)) if ended > begun else 0
        if stretch not in highest or kib > highest[stretch][1]:
            highest[stretch] = (at, kib)
    return [[round(at - begun, 4), kib] for at, kib in highest.values()]


class Watch:
    """Samples the resident sets of a process's descendants.

    `outlived` is for a server, which is still running when the watch ends. Otherwise the end is the end of the process that held the most
    at any time, since the command may be a script that checks a program's output.
    """

    def __init__(self, outlived: bool) -> None:
        self._outlived = outlived
        self._samples: list[tuple[float, dict[int, int]]] = []

    @contextlib.contextmanager
    def over(self, pid: int) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._sample, args=(pid, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _sample(self, pid: int, stop: threading.Event) -> None:
        begun = time.monotonic()
        ended = False
        while not ended:
            ended = stop.is_set()  # one more sample follows, of a server without its client
            before = time.monotonic()
            sizes = {one: size for one in set(below(pid)) if (size := _resident_kib(one))}
            now = time.monotonic()
            if sizes:
                self._samples.append((now, sizes))
            pause = min(INTERVAL, max(_SHORTEST, (now - begun) / _SHARE))  # so that short runs have samples too
            stop.wait(max(pause, (now - before) * _SHARE))

    def summary(self) -> dict:
        """Empty if there is no sample, since the command was too short."""
        if not self._samples:
            return {}
        totals = [(at, sum(sizes.values())) for at, sizes in self._samples]
        seconds = totals[-1][0] - totals[0][0]
        area = sum((one + other) / 2 * (then - at) for (at, one), (then, other) in zip(totals, totals[1:]))
        mean = area / seconds if seconds else totals[0][1]
        return {"mean_rss_kib": round(mean), "end_rss_kib": self._end(), "samples": len(totals), "course": _course(totals)}

    def _end(self) -> int:
        if self._outlived:
            return sum(self._samples[-1][1].values())
        _, largest = max((size, pid) for _, sizes in self._samples for pid, size in sizes.items())
        return next(sum(sizes.values()) for _, sizes in reversed(self._samples) if largest in sizes)

"""The resident set of a process and all below it while it runs: its mean over time, and what is left at the end.

Pages that several of the processes share are counted once: a process's part of each, as the kernel's Pss gives it.
To add that up the kernel walks the page tables, so that the run that is watched is no run to time.
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
_KEPT = 40  # samples that are kept of a run, for a plot
_SHARE = (
    10  # pauses are a tenth of the time so far, while that is less, and ten times as long as what came before them took
)


def below(pid: int) -> Iterator[int]:
    """The processes that `pid` has started, and those that these have started."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                    yield int(child)
                    yield from below(int(child))


def _resident_kib(pid: int) -> int:
    """0 for one that has ended; all its pages where the parts can't be had, as of another user's."""
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
    """Seconds since the first sample, and KiB: of each stretch of time the highest, so that no peak gets lost."""
    begun, ended = totals[0][0], totals[-1][0]
    highest: dict[int, tuple[float, int]] = {}
    for at, kib in totals:
        stretch = int((at - begun) / (ended - begun) * (_KEPT - 1)) if ended > begun else 0
        if stretch not in highest or kib > highest[stretch][1]:
            highest[stretch] = (at, kib)
    return [[round(at - begun, 4), kib] for at, kib in highest.values()]


class Watch:
    """Samples what the processes below one hold.

    `outlived` is for a server: it is still there when the watch ends. Otherwise the end is that of the process that held most at any
    time, since the command may be a script that checks what a program has printed.
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
            ended = stop.is_set()  # and one more sample, of a server without its client
            before = time.monotonic()
            sizes = {one: size for one in set(below(pid)) if (size := _resident_kib(one))}
            now = time.monotonic()
            if sizes:
                self._samples.append((now, sizes))
            pause = min(INTERVAL, max(_SHORTEST, (now - begun) / _SHARE))  # so that short runs have samples too
            stop.wait(max(pause, (now - before) * _SHARE))

    def summary(self) -> dict:
        """Empty where nothing was seen: the command was too short."""
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

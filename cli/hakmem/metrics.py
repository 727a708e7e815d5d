"""hakmem metrics: what hakmem processes hold, for Prometheus and other readers of OpenMetrics.

Nothing is counted here and nothing runs in the processes: each reading is from outside, as for hakmem resident. The figures of one process
are from the same moment; those of different processes are not.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import GaugeMetricFamily, Metric, StateSetMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from hakmem import insight, resident, top
from hakmem.command_line import ERROR
from hakmem.errors import Failure
from hakmem.estimates import NOT_SAMPLED
from hakmem.memory import expect_proc
from hakmem.resident import Table
from hakmem.symbols import Symbols
from hakmem.top import Found

_LABELS = ("pid", "name")
_VERDICTS = (
    resident.PROGRAM,
    resident.CACHE,
    resident.FRAGMENTATION,
    resident.HUGE,
    resident.META,
    resident.OTHER,
    resident.PAGE_CACHE,
)
_FRESH = 1.0  # seconds in which the processes are not read again, however often someone asks
_PREFIX = "hakmem_"


class _Families:
    """The metrics of one reading, each with the samples of all processes."""

    def __init__(self) -> None:
        def gauge(name: str, text: str, *labels: str, unit: str = "bytes") -> GaugeMetricFamily:
            return GaugeMetricFamily(_PREFIX + name, text, labels=(*_LABELS, *labels), unit=unit)

        self.total = gauge("process_resident", "Resident set of the process, according to the kernel's smaps.")
        self.part = gauge("resident", "What the resident set is made of; the parts sum to the whole.", "part", "group")
        self.swapped = gauge("swapped", "Swapped out, not part of the resident set.")
        self.live = gauge("live", "Blocks that the program has allocated and not freed, resident or not.")
        self.blocks = gauge("live_blocks", "Number of these blocks.", unit="")
        self.site = gauge("function_live", "Live bytes by the function that allocated them, estimated.", "function")
        self.error = gauge("function_live_error", "One standard error of that estimate.", "function")
        self.readable = gauge("readable", "1 if the process could be read this time, 0 if not.", unit="")
        self.window = gauge("window_age", "Age of the data from the window of a process that may not be traced.", unit="seconds")
        self.seconds = gauge("read", "How long reading the process took.", unit="seconds")
        self.verdict = StateSetMetricFamily(
            f"{_PREFIX}verdict", "What stands out in the resident set.", labels=_LABELS
        )

    def add(self, found: Found, seconds: float, functions: int) -> None:
        of = (str(found.process), found.name)
        self.readable.add_metric(of, float(found.table is not None))
        self.seconds.add_metric(of, seconds)
        if found.table is None or found.taken is None:
            return
        table, taken = found.table, found.taken
        self.total.add_metric(of, table.total or 0)
        if table.window_age is None:
            self.add_parts(of, table)
        else:
            self.window.add_metric(of, table.window_age)
        self.live.add_metric(of, taken.live_bytes)
        self.blocks.add_metric(of, sum(each.live for each in taken.classes) + taken.large_blocks)
        self.verdict.add_metric(of, {kind: kind == table.verdict.kind for kind in _VERDICTS})
        if functions and taken.rate:
            for row in insight.rows(taken, Symbols(taken), insight.FUNCTION, functions)[0]:
                self.site.add_metric((*of, row.name), row.line.bytes)
                if row.line.key != NOT_SAMPLED:  # its error is not known
                    self.error.add_metric((*of, row.name), row.line.error)

    def add_parts(self, of: tuple[str, str], table: Table) -> None:
        self.swapped.add_metric(of, table.swapped or 0)
        parts: Counter[tuple[str, str]] = Counter()
        for row in table.rows:
            parts[row.key, row.group] += row.resident or 0
        for part, size in parts.items():
            self.part.add_metric((*of, *part), size)


class Processes(Collector):
    """Reads the processes whenever someone asks, but at most once a second."""

    def __init__(self, processes: tuple[int, ...], user: int, functions: int) -> None:
        self._processes, self._user, self._functions = processes, user, functions
        self._lock = threading.Lock()
        self._metrics: list[Metric] = []
        self._due = 0.0

    def _read(self) -> list[Metric]:
        expect_proc()
        families = _Families()
        for process in self._processes or top.processes(self._user):
            start = time.monotonic()
            found = top.look(process)
            if self._processes or top.is_of_hakmem(found):
                families.add(found, time.monotonic() - start, self._functions)
        return list(vars(families).values())

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            if time.monotonic() >= self._due:
                self._metrics = self._read()
                self._due = time.monotonic() + _FRESH
            return iter(self._metrics)

    def describe(self) -> list[Metric]:
        return []  # otherwise registering would read them


def registry_of(processes: tuple[int, ...], user: int, functions: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Processes(processes, user, functions))
    return registry


def text_of(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def write(registry: CollectorRegistry, file: str) -> None:
    """Writes the file for the node exporter's textfile collector, in Prometheus' own format. A reader never sees a partial file."""
    try:
        write_to_textfile(file, registry)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None


def address_of(text: str) -> tuple[str, int]:
    """Parses host:port, [host]:port, or a port on this machine only."""
    host, colon, port = text.rpartition(":")
    try:
        number = int(port)
    except ValueError:
        number = -1
    host = host.strip("[]") if colon else "127.0.0.1"
    try:
        host.encode("idna")  # as in the lookup
    except UnicodeError:
        host = ""
    if not 0 <= number < 1 << 16 or not host:
        raise Failure(f"{text}: not an address: PORT or HOST:PORT is expected", ERROR)
    return host, number


def serve(registry: CollectorRegistry, host: str, port: int) -> tuple[str, threading.Thread]:
    """Starts to answer; returns the URL, and the thread to wait for."""
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise Failure(f"{host}:{port}: {error.strerror}") from None
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.server_port}/metrics", thread

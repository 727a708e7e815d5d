"""The names that `import hakmem` offers to a program that runs under hakmem.

The library's functions are looked up in the process, by ctypes, when they are first called; nothing is loaded into it. All functions may
be called by any thread at any time, also after a fork. The interpreter's lock is not held while the library works. Functions that write
raise MemoryError if there is no room for what they write.
"""

from __future__ import annotations

import _thread
import operator
import os
from collections.abc import Iterator, Mapping

TYPE_CHECKING = False  # importing typing's would take as long as all other imports here
if TYPE_CHECKING:
    from typing import Any, BinaryIO

    from hakmem.diff import Change, Difference
    from hakmem.insight import AllocatedRow
    from hakmem.snapshots import Snapshot

_MOST = (1 << 32) - 1  # the greatest tag and number of seconds
_PROBE = "hak_stats_get"  # hakmem exports it in every build

_functions: dict[str, Any] = {}
_libraries: list[Any] = []  # all that the process has loaded, as one library


class NotActive(RuntimeError):
    """This process does not run under hakmem."""

    __module__ = "hakmem"  # where its users find it

    def __init__(self, missing: str = _PROBE) -> None:
        super().__init__(
            "this process does not run under hakmem: start it with `hakmem run -- python ...`"
            if missing == _PROBE
            else f"this process runs under an older hakmem, which has no {missing}"
        )


def _process() -> Any:
    if not _libraries:
        import ctypes

        _libraries.append(ctypes.CDLL(None))
    return _libraries[0]


def _function(name: str) -> Any:
    """The library's function of this name, with its types."""
    if name not in _functions:
        import ctypes

        takes, gives = {
            "hak_stats_json": (ctypes.c_int, ctypes.c_bool),
            "hak_profile_write": (ctypes.c_int, ctypes.c_bool),
            "hak_profile_pprof": (ctypes.c_int, ctypes.c_bool),
            "hak_profile_arm": (ctypes.c_uint32, ctypes.c_bool),
            "hak_tag_set": (ctypes.c_uint32, ctypes.c_uint32),
            "hak_collect": (ctypes.c_bool, ctypes.c_size_t),
        }[name]
        try:
            found = getattr(_process(), name)
        except AttributeError:
            raise NotActive(name if active() else _PROBE) from None
        found.argtypes, found.restype = [takes], gives
        _functions[name] = found
    return _functions[name]


def active() -> bool:
    """Whether this process runs under hakmem: preloaded, or linked with the shared library. Does not change while it runs."""
    return hasattr(_process(), _PROBE)


def _number(value: int, what: str) -> int:
    value = operator.index(value)
    if not 0 <= value <= _MOST:
        raise ValueError(f"{what} must be from 0 to {_MOST}, not {value}")
    return value


# ---- What the library writes ----


def _unwritten() -> BinaryIO:
    """A file in memory outside the heap, since a snapshot must not appear in the next one. It has no buffer, for the same reason."""
    from hakmem.unnamed import unnamed_file

    return unnamed_file("hakmem")


def _fill(file: BinaryIO, name: str) -> None:
    if not _function(name)(file.fileno()):
        raise MemoryError(f"{name} found no room to write")


def _content(file: BinaryIO) -> bytes:
    """Reads without the file offset, which a fork's child shares."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _written(name: str) -> bytes:
    with _unwritten() as file:
        _fill(file, name)
        return _content(file)


def _deliver(name: str, target: str | os.PathLike[str] | int | BinaryIO) -> None:
    """Writes through memory, so that the library needn't wait for the target, and a failure raises Python's usual exception."""
    data = _written(name)
    if hasattr(target, "write"):
        target.write(data)
    else:
        with open(target, "wb", closefd=not isinstance(target, int)) as file:
            file.write(data)


def snapshot(target: str | os.PathLike[str] | int | BinaryIO) -> None:
    """Writes a snapshot of this process's heap, for `hakmem profile` and `hakmem diff`: hak_profile_write.

    `target` is a path, whose file is replaced, a file descriptor, or a binary file, of which write() is called once. No other thread is
    stopped: a block that is allocated or freed meanwhile may be included or not.

    Raises OSError if the target can't be written, and NotActive.
    """
    _deliver("hak_profile_write", target)


def pprof(target: str | os.PathLike[str] | int | BinaryIO) -> None:
    """Writes a profile of this process's heap for `go tool pprof`, not compressed: hak_profile_pprof.

    `target` is as for snapshot(); for a server's /debug/pprof/heap it is the response. The profile has no names of the interpreter's
    functions, but the build ids of their files, by which they can be found.

    Raises OSError if the target can't be written, and NotActive.
    """
    _deliver("hak_profile_pprof", target)


# ---- Statistics ----


class Stats(Mapping[str, "Any"]):
    """The allocator's counts at one time: `stats["live"]` or `stats.live`.

    The names are those of hak_stats_t in hakmem.h, which explains each; all are bytes unless a name says otherwise. The most used are
    `live` (in blocks that the program holds), `committed` (live and free block memory), and `resident` (of the whole process). In addition,
    `class_stats` and `heap_stats` list such counts for each size class and for each thread's heap. A newer library has more.
    """

    def __init__(self, figures: dict[str, Any]) -> None:
        self._figures = figures

    def __getitem__(self, name: str) -> Any:
        return self._figures[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_figures"][name]
        except KeyError:
            raise AttributeError(f"hakmem has no statistic {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    def __repr__(self) -> str:
        return f"Stats({', '.join(f'{name}={value}' for name, value in self.items() if isinstance(value, int))})"


def stats() -> Stats:
    """The allocator's current statistics: hak_stats_json, with all figures that the library has.

    Other threads are not stopped: each figure is exact, but the figures may not be from the same moment. Takes some 0.2 ms, more with many
    threads.

    Raises NotActive.
    """
    import json

    return Stats(json.loads(_written("hak_stats_json")))


# ---- Who allocates ----


def set_tag(number: int) -> int:
    """Labels what this thread allocates from now on, in profiles (`hakmem profile --by tag`), and returns the previous label.

    `number` is from 0, for no label, to 2**32 - 1, and may stand for a tenant, a request or a subsystem. It belongs to the operating
    system's thread: new threads begin with 0, and coroutines that share a thread share its label. Takes some 0.5 µs.

    Raises ValueError for another number, and NotActive.
    """
    return _function("hak_tag_set")(_number(number, "a tag"))


class tag:  # noqa: N801 (used as a function)
    """Labels what this thread allocates within the block: `with hakmem.tag(7): ...`. At its end the previous label is restored.

    The label is as for set_tag(). If the block contains an `await` or a `yield`, what runs meanwhile in this thread has the label too. An
    object belongs to one thread.
    """

    def __init__(self, number: int) -> None:
        self._number = _number(number, "a tag")
        self._before: list[int] = []  # the same object may be entered again inside its own block

    def __enter__(self) -> tag:
        self._before.append(set_tag(self._number))
        return self

    def __exit__(self, *_: object) -> None:
        set_tag(self._before.pop())


def arm(seconds: int) -> None:
    """Counts what all threads allocate from now on, by site, for so many seconds, freed soon or not; 0 ends that: hak_profile_arm.

    Snapshots contain the counts, summed over all such times. Meanwhile a small allocation takes 173 instructions more.

    Raises ValueError unless seconds is from 0 to 2**32 - 1, RuntimeError under Valgrind's memcheck, and NotActive.
    """
    if not _function("hak_profile_arm")(_number(seconds, "seconds")):
        raise RuntimeError("allocations can't be counted under Valgrind's memcheck")


class _Counting:
    """Counts the open blocks of profile(events=True): the last one to end ends the counting of allocations."""

    def __init__(self) -> None:
        self._blocks = 0
        self._lock = _thread.allocate_lock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:  # another thread may have held the lock; the blocks are the parent's
        self._lock = _thread.allocate_lock()
        self._blocks = 0

    def begin(self) -> None:
        with self._lock:
            arm(_MOST)
            self._blocks += 1

    def end(self) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                arm(0)


_counting = _Counting()


def trim() -> int:
    """Immediately gives back to the system all free memory that can be given back: hak_collect. Returns how many bytes that was.

    Without this call free memory is given back with time (HAKMEM_DECAY_MS). The contents of other threads' bins stay there. In a large
    heap this takes a while, during which other threads may wait.

    Raises NotActive.
    """
    return _function("hak_collect")(True)


# ---- What a block of code did ----


class profile:  # noqa: N801 (used as a function)
    """Reports what a block of code allocated and kept: takes a snapshot of the process before and one after it.

        with hakmem.profile() as taken:
            work()
        print(taken.text())

    With `path` the snapshots are written to PATH.before and PATH.after, for `hakmem diff` and `hakmem profile`. With `events`
    allocations are counted during the block, freed since or not: `allocated`. When the last such block ends, this also ends an arm().

    The report covers the whole process, including other threads' work. It rests on samples, one for each 128 KiB of blocks on average: a
    change of less than 1 MiB can seldom be distinguished from chance, one of some large blocks always. Objects in cycles that the garbage
    collector has not found count as kept: end the block with gc.collect(). An object serves one block at a time; after that any thread may
    use it. Blocks may be nested, and may run in several threads. A child that is forked in a block gets a report on itself; it writes no
    files and counts no allocations.

    Entering raises NotActive, and OSError if a snapshot can't be written. The results raise RuntimeError until the block has ended, and
    if no blocks are sampled (HAKMEM_INSIGHT=0, the secure library).
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, events: bool = False) -> None:
        self._path = None if path is None else os.fsdecode(path)
        self._events = events
        self._taken: list[bytes] = []  # before and after
        self._difference: Difference | None = None

    def __enter__(self) -> profile:
        for name in ("hak_profile_write", "hak_profile_arm"):  # so that what they need is allocated before the first snapshot
            _function(name)
        self._taken = []
        self._difference = None
        self._kept = [open(f"{self._path}.{which}", "wb") for which in ("before", "after")] if self._path else []
        self._files = [_unwritten(), _unwritten()]
        self._process = os.getpid()
        _fill(self._files[0], "hak_profile_write")
        if self._events:
            _counting.begin()
        return self

    def _leave_to_parent(self) -> None:
        """In a fork's child: the parent writes its files itself."""
        for file in (self._files.pop(), *self._kept):
            file.close()
        self._files.append(_unwritten())
        self._kept = []

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._process:
            self._leave_to_parent()
        elif self._events:
            _counting.end()
        _fill(self._files[1], "hak_profile_write")
        for file in self._files:
            with file:
                self._taken.append(_content(file))
        for kept, data in zip(self._kept, self._taken):
            with kept:
                kept.write(data)

    @property
    def snapshots(self) -> tuple[bytes, bytes]:
        """The snapshots before and after, as snapshot() writes them."""
        if len(self._taken) < 2:
            raise RuntimeError("the block has not ended: there is no second snapshot yet")
        return self._taken[0], self._taken[1]

    def _parsed(self) -> tuple[Snapshot, Snapshot]:
        from hakmem.snapshots import of_bytes

        before, after = self.snapshots
        return of_bytes(before, "before"), of_bytes(after, "after")

    @property
    def difference(self) -> Difference:
        """All that `hakmem diff` finds. Computed at the first access, which may take seconds, for the names."""
        from hakmem import diff
        from hakmem.errors import Failure

        if self._difference is None:
            try:
                self._difference = diff.compare(*self._parsed())
            except Failure as failure:
                raise RuntimeError(str(failure)) from None
        return self._difference

    @property
    def changes(self) -> list[Change]:
        """The sites that hold more or less than before beyond chance, the largest change first.

        Each one's `change`, `before`, `after` and `error` (the standard error of the change) are in bytes; its `frames` are the names and
        places of its calls, the innermost first, from the one that wanted the memory.
        """
        return self.difference.told

    @property
    def allocated(self) -> list[AllocatedRow]:
        """With `events`: what was allocated during the block by site, the largest first; otherwise nothing.

        Each one's `sums` has `bytes`, `objects` and the `error` of the bytes, and the number of `events` that they rest on; `frames` are as
        in changes. The sum of all is exactly what was allocated; what has no event is "(not sampled)".
        """
        from hakmem import insight, symbols

        after = self._counted()
        return insight.allocated_rows(after, symbols.Symbols(after), insight.SITE)

    def _counted(self) -> Snapshot:
        """The snapshot after the block, with only what was counted since the one before."""
        from hakmem import allocations

        before, after = self._parsed()
        allocations.since(before, after)
        return after

    def text(self, top: int = 20, depth: int = 8) -> str:
        """What changed, as `hakmem diff` shows it, and with `events` what was allocated: up to `top` lines each, with `depth` calls."""
        from hakmem import insight, render

        difference = self.difference
        parts: list[Any] = list(insight.difference_heading(difference))
        if difference.told:
            parts.append(insight.difference_table(difference, top, depth, everything=False))
        else:
            parts.append("no site changed beyond chance")
        if self._events:
            after = self._counted()
            parts.append(insight.allocated_heading(after))
            parts.append(insight.allocated_table(after, self.allocated, top, depth))
        return render.wide_text([*parts, *difference.remarks])

"""hakmem, a drop-in malloc for Linux: its command line, and functions for a Python program that runs under it.

    import hakmem

    hakmem.stats().live                   # bytes in blocks that the program holds
    with hakmem.tag(7): ...               # labels what this thread allocates
    with hakmem.profile() as taken: ...   # what a block of code kept
    print(taken.text())

docs/languages/python.md describes them. The import is cheap, and works wherever ctypes does: the functions raise NotActive if hakmem
is not in use.
"""

from __future__ import annotations

from hakmem.inside import NotActive, Stats, active, arm, pprof, profile, set_tag, snapshot, stats, tag, trim

__all__ = [
    "NotActive",
    "Stats",
    "__version__",
    "active",
    "arm",
    "pprof",
    "profile",
    "set_tag",
    "snapshot",
    "stats",
    "tag",
    "trim",
]


def __getattr__(name: str) -> str:
    """Finds the version only when needed, since that takes longer than importing everything else here."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("hakmem")

"""hakmem, a drop-in malloc for Linux: its command line, and what a Python program that runs under it can ask and tell of itself.

    import hakmem

    hakmem.stats().live                   # bytes in blocks that the program holds
    with hakmem.tag(7): ...               # labels what this thread allocates
    with hakmem.profile() as taken: ...   # what a block of code kept
    print(taken.text())

docs/languages/python.md tells more. The import is cheap, and works wherever ctypes does: functions raise NotActive where hakmem
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
    """The version, which takes longer to find than all else here to import."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("hakmem")

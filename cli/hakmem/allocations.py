"""Who allocates, be it freed since or not: counts by events, of the time that the process was armed."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from hakmem.snapshots import Allocations, Snapshot


def by_key(snapshot: Snapshot, key_of: Callable[[int], Hashable]) -> dict[Hashable, Allocations]:
    """The sums by what `key_of` says of sites, the largest bytes first."""
    sums: dict[Hashable, Allocations] = {}
    for site, each in snapshot.allocated.items():
        key = key_of(site)
        sums[key] = sums[key] + each if key in sums else each
    return dict(sorted(sums.items(), key=lambda item: -item[1].bytes))

"""What was allocated by site while the process was armed, whether freed since or not.

The amounts are counted exactly, in groups of similar sizes; events show which sites allocated them. The events of a group are scaled to
sum to its count, so that all lines sum to what was allocated. A line has T * r of a group's T bytes, where r = Y / (Y + Z), Y is what its
events stand for, and Z what the others stand for. With V = Y² (1 - p) / n for n events, p being the mean of their chances, its variance is

    (T / (Y + Z))² * ((1 - r)² * V(Y) + r² * V(Z))

as for samples (hakmem.estimates). It is 0 if a line has all events of its groups.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from hakmem.estimates import NOT_SAMPLED, apportion
from hakmem.snapshots import Allocations, Counted, Snapshot


@dataclass
class Sums:
    """What one key has allocated."""

    events: int = 0
    objects: int = 0
    bytes: int = 0
    variance: float = 0.0  # of the bytes

    @property
    def error(self) -> float:
        """The standard error of the bytes."""
        return math.sqrt(self.variance)

    def add(self, events: int, objects: int, size: int, variance: float) -> None:
        self.events += events
        self.objects += objects
        self.bytes += size
        self.variance += variance


def _variance(each: Allocations) -> float:
    """The variance of the bytes that the events stand for."""
    return each.bytes * each.bytes * max(0.0, 1 / each.events - 1 / max(each.objects, each.events))


def _share_out(counted: Counted, of_key: dict[Hashable, Allocations], sums: dict[Hashable, Sums]) -> None:
    objects = apportion(counted.objects, {key: each.objects for key, each in of_key.items()})
    held = apportion(counted.bytes, {key: each.bytes for key, each in of_key.items()})
    whole = sum(each.bytes for each in of_key.values()) or 1  # 0 if all blocks were of no bytes
    variances = {key: _variance(each) for key, each in of_key.items()}
    variance, ratio = sum(variances.values()), counted.bytes / whole
    for key, each in of_key.items():
        share, own = each.bytes / whole, variances[key]
        scaled = ratio * ratio * ((1 - share) ** 2 * own + share * share * max(0.0, variance - own))
        sums[key].add(each.events, objects[key], held[key], scaled)


def by_key(snapshot: Snapshot, key_of: Callable[[int], Hashable]) -> dict[Hashable, Sums]:
    """The sums by each site's `key_of`, the most bytes first. They sum to what was counted; an older library counts nothing."""
    sums: dict[Hashable, Sums] = defaultdict(Sums)
    of_group: dict[int, dict[Hashable, Allocations]] = defaultdict(dict)
    for (site, group), each in snapshot.events.items():
        key, of_key = key_of(site), of_group[group]
        of_key[key] = of_key[key] + each if key in of_key else each
    for group, counted in snapshot.counted.items():
        if of_group.get(group):
            _share_out(counted, of_group[group], sums)
        else:
            sums[NOT_SAMPLED].add(0, counted.objects, counted.bytes, 0.0)
    if not snapshot.counted:
        for site, each in snapshot.allocated.items():
            sums[key_of(site)].add(each.events, each.objects, each.bytes, each.bytes**2 / each.events)
    return dict(sorted(sums.items(), key=lambda item: -item[1].bytes))


def totals(snapshot: Snapshot) -> tuple[int, int]:
    """All blocks and bytes."""
    counts = snapshot.counted or snapshot.allocated
    return sum(each.objects for each in counts.values()), sum(each.bytes for each in counts.values())


def _live_blocks(snapshot: Snapshot) -> int:
    return snapshot.large_blocks + sum(each.live for each in snapshot.classes)


def since(before: Snapshot, after: Snapshot) -> None:
    """Subtracts from `after` what was counted before. What was freed in between is what was allocated and did not stay; this is approximate
    if the process runs on while it is read."""
    after.allocated = {
        site: each - before.allocated[site] if site in before.allocated else each
        for site, each in after.allocated.items()
        if site not in before.allocated or each.events > before.allocated[site].events
    }
    after.events = {
        key: each - before.events[key] if key in before.events else each
        for key, each in after.events.items()
        if key not in before.events or each.events > before.events[key].events
    }
    after.counted = {
        group: each - before.counted[group] if group in before.counted else each
        for group, each in after.counted.items()
        if group not in before.counted or each.objects > before.counted[group].objects
    }
    if after.counted:
        objects, _ = totals(after)
        after.freed = max(0, objects - _live_blocks(after) + _live_blocks(before))

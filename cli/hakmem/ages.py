"""Age classes of live blocks: how long ago these were allocated. They do not show how long freed blocks lasted."""

from __future__ import annotations

import bisect

from hakmem.snapshots import Sample

# The age in seconds at which a class begins, and its name.
_CLASSES = [
    (0, "under 1 s"),
    (1, "1 s to 10 s"),
    (10, "10 s to 1 min"),
    (60, "1 min to 10 min"),
    (600, "10 min to 1 h"),
    (3600, "1 h to 1 d"),
    (86400, "1 d and more"),
]
FROM = [seconds for seconds, _ in _CLASSES]
NAMES = [name for _, name in _CLASSES]


def class_of(sample: Sample) -> int:
    """The number of the sample's class; the youngest is 0."""
    return bisect.bisect_right(FROM, sample.age) - 1

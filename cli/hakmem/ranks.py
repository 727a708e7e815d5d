"""Whether the values of one sample tend to be larger than those of another: the rank test of Mann, Whitney and Wilcoxon.

It looks only at the order of the values, so that one run that was disturbed neither makes nor hides a difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

_EXACT_UP_TO = 24  # values in both together; beyond this the normal distribution is as good


def _ranks(values: Sequence[float]) -> dict[float, int]:
    """Twice the rank of each value; equal ones share the mean of theirs."""
    ranks, below = {}, 0
    for value, count in sorted(Counter(values).items()):
        ranks[value] = 2 * below + count + 1
        below += count
    return ranks


def _sums(ranks: Sequence[int], size: int) -> Counter[int]:
    """How many choices of so many ranks have each sum."""
    ways: list[Counter[int]] = [Counter({0: 1}), *(Counter() for _ in range(size))]
    for rank in ranks:
        for chosen in range(size, 0, -1):
            for total, count in ways[chosen - 1].items():
                ways[chosen][total + rank] += count
    return ways[size]


def _normal_chance(off: int, ranks: Sequence[int], size: int) -> float:
    count = len(ranks)
    mean = sum(ranks) / count
    variance = sum((rank - mean) ** 2 for rank in ranks) / (count - 1) * size * (count - size) / count
    return math.erfc(max(0, off - 1) / math.sqrt(2 * variance)) if variance else 1.0


def chance(one: Sequence[float], other: Sequence[float]) -> float:
    """The chance that ranks differ as much as these, to either side, if nothing but chance tells the samples apart."""
    ranks_of = _ranks([*one, *other])
    ranks = [ranks_of[value] for value in (*one, *other)]
    size, mean = len(one), len(one) * (len(ranks) + 1)
    off = abs(sum(ranks[:size]) - mean)
    if len(ranks) > _EXACT_UP_TO:
        return _normal_chance(off, ranks, size)
    sums = _sums(ranks, size)
    return sum(count for total, count in sums.items() if abs(total - mean) >= off) / sum(sums.values())

"""Computes with arrays of random size, as a numerical program does that keeps little and whose temporaries are large.

    numpy_arrays.py ROUNDS
"""
import random
import sys

import numpy

MOST = 6 << 20  # bytes of the largest array
KEPT = 8


def main(rounds):
    chance = random.Random(1)
    kept = [numpy.ones(1000) for _ in range(KEPT)]
    total = 0.0
    for number in range(rounds):
        size = chance.randrange(1, MOST // 8)
        array = numpy.arange(size, dtype=float)
        scaled = array * 0.5 + 1.0
        other = kept[number % KEPT]
        least = min(len(other), size)
        total += float((scaled[:least] - other[:least]).sum())
        assert scaled[-1] == (size - 1) * 0.5 + 1.0, f"round {number}: the last element has changed"
        kept[chance.randrange(KEPT)] = scaled
    assert total == total


main(*map(int, sys.argv[1:]))

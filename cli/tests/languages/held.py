"""Holds 64 MiB: "heap", small objects, or "long", one array, or "numpy", one of numpy's."""

import sys

if sys.argv[1] == "heap":
    kept = [[None] for _ in range(64 * 1024 * 1024 // 64)]
elif sys.argv[1] == "long":
    kept = bytearray(b"x") * (64 << 20)
else:
    import numpy

    kept = numpy.ones(64 << 20, numpy.uint8)
print("ready", flush=True)
sys.stdin.readline()

"""The heap of a service in Python: records, lists and buffers of changing sizes are built and dropped.  churn.py MEBIBYTES"""

import sys


def build(size: int, bytes_: int) -> list[object]:
    """Objects of about `bytes_` bytes in all."""
    count = bytes_ // (size + 250)
    return [{"key": i, "value": b"v" * size, "list": [i, i + 1]} if size < 1000 else bytes(size) for i in range(count)]


kept: list[object] = []
whole = int(sys.argv[1]) << 20
for size in (24, 300, 2000, 90, 9000, 500, 70_000, 40, 700, 200):
    built = build(size, whole)
    kept += built[::200]
    del built

"""Short high peaks in numpy: temporaries of expressions, sorts, strings.  arrays.py MEBIBYTES"""

import sys

import numpy

whole = int(sys.argv[1]) << 20
random = numpy.random.default_rng(1)
results = []
for rows in (1000, 30_000, 200, 7000, 100_000):
    columns = whole // 8 // rows // 4
    table = random.random((rows, columns))
    results.append(float((numpy.sqrt(table * 2 + 1) - table.mean(axis=0)).sum()))
    parts = [row * 2 for row in table[: rows // 2]]
    results.append(float(numpy.sort(numpy.concatenate(parts))[-1]))
    del table, parts
print(len(results))

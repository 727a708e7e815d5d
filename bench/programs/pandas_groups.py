"""Groups, merges and sorts tables that grow from one to the next.

    pandas_groups.py TABLES ROWS
"""
import sys

import numpy
import pandas

GROUPS = 1000


def work(rows, chance):
    table = pandas.DataFrame({
        "key": chance.integers(0, GROUPS, rows),
        "name": chance.choice(["alpha", "beta", "gamma"], rows),
        "value": chance.random(rows),
    })
    groups = table.groupby(["name", "key"])["value"].agg(["mean", "sum", "count"]).reset_index()
    assert groups["count"].sum() == rows, "a row is in no group"
    merged = table.merge(groups, on=["name", "key"])
    merged["share"] = merged["value"] / merged["sum"]
    assert abs(merged["share"].sum() - len(groups)) < 1e-6 * rows, "the shares of a group do not make one"
    return merged.sort_values("share").head(10)


def main(tables, rows):
    chance = numpy.random.default_rng(1)
    for number in range(tables):
        work(rows + rows // 5 * number, chance)


main(*map(int, sys.argv[1:]))

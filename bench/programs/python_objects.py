"""Builds a graph of small objects, changes a third of it each round, and sums it up: instances, lists, tuples, dicts, strings.

    python_objects.py NODES ROUNDS
"""
import sys


class Node:
    __slots__ = ("key", "name", "links", "notes")

    def __init__(self, key):
        self.key = key
        self.name = f"node {key}"
        self.links = []
        self.notes = {"weight": float(key), "pair": (key, key + 1)}


def link(nodes, count):
    for index, node in enumerate(nodes):
        node.links = [nodes[(index * step + 1) % count] for step in (2, 3, 5)]


def total(nodes):
    return sum(len(node.name) + node.notes["pair"][1] + sum(other.key for other in node.links) for node in nodes)


def main(count, rounds):
    nodes = [Node(key) for key in range(count)]
    link(nodes, count)
    expected = total(nodes)
    for turn in range(rounds):
        for index in range(turn % 3, count, 3):
            nodes[index] = Node(index)
        link(nodes, count)
        assert total(nodes) == expected, f"round {turn}: the sum has changed"


main(*map(int, sys.argv[1:]))

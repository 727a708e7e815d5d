"""reader.py - a CPython program that leaks twice: in an extension (spans.c), and in one of its own lists."""

import sys
import time

import spans

seen = []  # what was read, for a report that is never requested


def parse(line):
    return spans.cut(line)


def note(words):
    seen.append([word.upper() for word in words])


print("ready", flush=True)
number = 0
while True:
    number += 1
    words = parse(f"{number} a line of words that are as long as those of a log" + "  and more" * 30 * (number % 3 == 0))
    if number % 10 == 0:
        note(words)
    if number % 200 == 0:
        time.sleep(0.005)

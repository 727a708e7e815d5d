#!/usr/bin/env python3
"""Counts atomic read-modify-writes, and writes to lines of the cache that another thread was the last to write, for 1,000 calls.

Each workload runs on a library that counts: count.c.  The work is the more the more threads there are.  With few processors threads give theirs up at random within the library, so that they meet in the midst of things.
  scaling.py --library LIB --workloads DIR            the table, in Markdown
  scaling.py ... --places pass-64 --threads 8         where one workload's counts come from
  scaling.py ... --check                              exit status 1 if a count grows with the number of threads
"""
import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

# name: program, arguments, rounds or steps of a thread, what the design needs at least
WORKLOADS = {
    "mixed-8192": ("random_mixed", "{n} 8192 {threads}", 20_000, "nothing: each thread frees its own"),
    "sharing-active": ("false_sharing", "active {n} 10 8 {threads}", 20_000, "nothing"),
    "larson-small": ("larson", "8 128 1024 2000 {threads} {n}", 6, "an operation for each block that another thread frees"),
    "larson-mixed": ("larson", "8 1000 5000 4000 {threads} {n}", 6, "the same"),
    "pass-64": ("producer_consumer", "{n} 1 1024 64 64 {pairs}", 10_000, "an operation for every second call, which frees another's"),
    "pass-mixed": ("producer_consumer", "{n} 16 1024 16 16000 {pairs}", 600, "the same"),
    "server": ("server", "{n} 2000 {threads} 2", 1_000, "an operation for each object that another thread frees"),
    "short-threads": ("short_threads", "200 {threads} {n}", 20, "the same; and a thread that begins and ends each 400 calls"),
}
THREADS = (2, 8, 32, 128)
CHECKED = {"mixed-8192": 4, "pass-64": 560, "larson-small": 120}  # the most operations for 1,000 calls, with any number of threads

Counts = collections.namedtuple("Counts", "calls places")  # places: offset -> operations, writes


def run(options, name, threads, n):
    program, arguments, _, _ = WORKLOADS[name]
    words = arguments.format(n=n, threads=threads, pairs=max(1, threads // 2)).split()
    with tempfile.TemporaryDirectory() as folder:
        counts = pathlib.Path(folder) / "counts"
        environment = {**os.environ, "LD_PRELOAD": str(options.library), "COUNT_FILE": str(counts)}
        subprocess.run([options.workloads / program, *words], env=environment, stdout=subprocess.DEVNULL, check=True, timeout=600)
        head, *lines = counts.read_text().splitlines()
    places = {}
    for line in lines:
        place, operations, writes = line.split()
        places[int(place, 16)] = (int(operations), int(writes))
    return Counts(int(head.split()[1]), places)


def measure(options, name, threads):
    """For 1,000 calls: the operations and writes of each place."""
    counts = run(options, name, threads, WORKLOADS[name][2])
    return {place: tuple(1000 * count / counts.calls for count in both) for place, both in counts.places.items()}


def totals(places):
    return tuple(sum(counts[i] for counts in places.values()) for i in range(2))


def table(options):
    print("| workload | needed at least |", " | ".join(f"{threads} threads" for threads in THREADS), "|")
    print("|---|---|" + "---|" * len(THREADS))
    for name in options.only or WORKLOADS:
        cells = ["{:.1f}, {:.1f}".format(*totals(measure(options, name, threads))) for threads in THREADS]
        print(f"| {name} | {WORKLOADS[name][3]} |", " | ".join(cells), "|", flush=True)


def named(options, place):
    """The functions that the call before this address was inlined into, the innermost first."""
    command = ["addr2line", "-f", "-i", "-s", "-e", options.library, hex(place - 1)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    return " < ".join(f"{function} {line.split(' ')[0]}" for function, line in zip(lines[0::2], lines[1::2]))


def places(options):
    found = sorted(measure(options, options.places, options.threads).items(), key=lambda item: -max(item[1]))
    print("operations  writes  of 1,000 calls, by place")
    for place, (operations, writes) in found[: options.most]:
        print(f"{operations:10.2f} {writes:7.2f}  {named(options, place)}")


def check(options):
    wrong = 0
    for name, most in CHECKED.items():
        few, many = (totals(measure(options, name, threads)) for threads in (2, 32))
        for threads, (operations, writes) in ((2, few), (32, many)):
            print(f"{name}, {threads} threads: {operations:.1f} operations, {writes:.1f} writes for 1,000 calls; {most} at most")
            wrong += operations > most
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--workloads", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", choices=WORKLOADS)
    parser.add_argument("--places", choices=WORKLOADS)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--most", type=int, default=25)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        return check(options)
    return places(options) if options.places else table(options)


if __name__ == "__main__":
    sys.exit(main())

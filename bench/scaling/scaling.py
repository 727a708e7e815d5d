#!/usr/bin/env python3
"""Counts what threads cost each other in the allocator, per 1,000 calls, with 2 to 128 threads.

The library that counts is built with count.c.  Each workload runs with N and with 2 N rounds of each thread; the difference is the
cost of running threads.  It includes the cost of starting a thread only if the workload's threads come and go.  Counted are atomic
read-modify-writes, writes to cache lines that another thread was the last to write, and reads of cache lines that another thread has
written since this thread last accessed them.

  scaling.py --build build                            prints the table, in Markdown; all counts go to build/scaling.json
  scaling.py ... --places pass-64 --threads 8         shows where one workload's counts come from
  scaling.py ... --grown pass-64                      shows where they grow, from the fewest threads to the most
  scaling.py ... --check                              exit status 1 if counts are too high with few threads or with many
"""
import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

THREADS = (2, 8, 32, 128)
FIGURES = ("operations", "writes", "reads")

# name: program, arguments, N.  Only programs that take a number of threads are here.
WORKLOADS = {
    "mixed-256": ("random_mixed", "{n} 256 {threads}", 30_000),
    "mixed-8192": ("random_mixed", "{n} 8192 {threads}", 40_000),
    "pool": ("pool", "{n} 256 {threads}", 6_000),
    "sharing-active": ("false_sharing", "active {n} 4 8 {threads}", 20_000),
    "sharing-passive": ("false_sharing", "passive {n} 4 8 {threads}", 20_000),
    "pass-64": ("producer_consumer", "{n} 1 1024 64 64 {pairs}", 8_192),
    "pass-64-batch": ("producer_consumer", "{n} 256 4096 64 64 {pairs}", 64),
    "pass-mixed": ("producer_consumer", "{n} 1 1024 16 16000 {pairs}", 8_192),
    "larson-small": ("larson", "8 128 1024 2000 {threads} {n}", 5),
    "larson-mixed": ("larson", "8 1000 5000 4000 {threads} {n}", 4),
    "server": ("server", "{n} 200 {threads} 2", 400),
    "short-threads": ("short_threads", "200 {threads} {n}", 12),
    "large-blocks": ("large_blocks", "{n} 4 {threads} 100000 400000", 300),
}
CLAIM = "region_clear_live"  # the one operation that every remote free needs

# name: bounds for operations, then for writes, per 1,000 calls with any number of threads. Half of pass-64's calls are frees, each of
# which claims its block. The cost of start and end is subtracted, so a figure may be below 0.
CHECKED = {"sharing-active": ((-50, 100), (-50, 100)), "pass-64": ((100, 700), (-50, 90))}
CHECKED_THREADS = (4, 32)
CHECKED_SCALE = 0.4

Counts = collections.namedtuple("Counts", "calls places")  # places: offset -> a count for each figure


def run(options, name, threads, n):
    program, arguments, _ = WORKLOADS[name]
    words = arguments.format(n=n, threads=threads, pairs=max(1, threads // 2)).split()
    with tempfile.TemporaryDirectory() as folder:
        counts = pathlib.Path(folder) / "counts"
        environment = {**os.environ, "LD_PRELOAD": str(options.library), "COUNT_FILE": str(counts)}
        subprocess.run([options.workloads / program, *words], env=environment, stdout=subprocess.DEVNULL, check=True, timeout=600)
        head, *lines = counts.read_text().splitlines()
    places = {}
    for line in lines:
        place, *figures = line.split()
        places[int(place, 16)] = tuple(map(int, figures))
    return Counts(int(head.split()[1]), places)


def measure(options, name, threads):
    """The counts of each place, per 1,000 calls."""
    n = max(1, int(WORKLOADS[name][2] * options.scale))
    once, twice = run(options, name, threads, n), run(options, name, threads, 2 * n)
    calls, none = twice.calls - once.calls, (0,) * len(FIGURES)
    return {
        place: tuple(1000 * (two - one) / calls for two, one in zip(twice.places.get(place, none), once.places.get(place, none)))
        for place in once.places.keys() | twice.places.keys()
    }


def total(places):
    return tuple(sum(counts[i] for counts in places.values()) for i in range(len(FIGURES)))


def names(options, places):
    """For each place, the functions that it was inlined into, innermost first."""
    command = ["addr2line", "-a", "-f", "-i", "-s", "-e", options.library]
    asked = "".join(f"{place - 1:#x}\n" for place in places)
    lines = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    found, last = {}, None
    for line in lines:
        if line.startswith("0x"):
            last = found.setdefault(int(line, 16) + 1, [])
        else:
            last.append(line.split(" ")[0])
    return {place: " < ".join(map(" ".join, zip(words[0::2], words[1::2]))) for place, words in found.items()}


def claims(options, places):
    """The number of blocks that another thread has freed."""
    known = names(options, places)
    return sum(counts[0] for place, counts in places.items() if known[place].startswith(CLAIM))


def by_name(places, known):
    """The counts by name.  Several places have the same name if the compiler has copied a line, or if a line does several things."""
    found = collections.defaultdict(lambda: (0,) * len(FIGURES))
    for place, counts in places.items():
        if any(counts):
            found[known[place]] = tuple(map(sum, zip(found[known[place]], counts)))
    return found


def table(options):
    print("| workload | needed | " + " | ".join(f"{threads} threads" for threads in THREADS) + " |")
    print("|---|---|" + "---|" * len(THREADS))
    results = {}
    for name in options.only or WORKLOADS:
        cells, results[name] = [], {}
        for threads in THREADS:
            places = measure(options, name, threads)
            results[name][threads] = by_name(places, names(options, places))
            cells.append("{:.0f}, {:.0f}, {:.0f}".format(*total(places)))
        print(f"| {name} | {claims(options, places):.0f} | " + " | ".join(cells) + " |", flush=True)
    (options.output or options.build / "scaling.json").write_text(json.dumps(results, indent=1) + "\n")


def show(options, places):
    known = names(options, places)
    print("operations   writes    reads  of 1,000 calls, by place")
    for place, counts in sorted(places.items(), key=lambda item: -sum(item[1]))[: options.most]:
        print("{:10.2f} {:8.2f} {:8.2f}  ".format(*counts) + known[place])


def grown(options):
    few, many = (measure(options, options.grown, threads) for threads in (THREADS[0], THREADS[-1]))
    none = (0,) * len(FIGURES)
    return {place: tuple(b - a for a, b in zip(few.get(place, none), counts)) for place, counts in many.items()}


def steady(options, name, threads, bounds):
    """The counts of a workload; if they are out of bounds, the median of eleven runs, as they also depend on the machine's other load."""
    counts = [total(measure(options, name, threads))]
    if any(not least <= figure <= most for figure, (least, most) in zip(counts[0], bounds)):
        counts += (total(measure(options, name, threads)) for _ in range(10))
    return tuple(map(statistics.median, zip(*counts)))


def check(options):
    wrong, options.scale = 0, CHECKED_SCALE
    for name, bounds in CHECKED.items():
        few, many = (steady(options, name, threads, bounds) for threads in CHECKED_THREADS)
        for figure, before, after, (least, most) in zip(FIGURES, few, many, bounds):
            bad = max(before, after) > most or min(before, after) < least
            threads = " and ".join(map(str, CHECKED_THREADS))
            print(f"{'FAIL' if bad else 'ok'} {name}: {before:.1f} and {after:.1f} {figure} for 1,000 calls with {threads} threads; {least} to {most}")
            wrong += bad
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build", help="the build directory, with the workloads and the library that counts")
    parser.add_argument("--library", type=pathlib.Path, help="another library that counts")
    parser.add_argument("--output", type=pathlib.Path, help="a file for all counts")
    parser.add_argument("--only", action="append", choices=WORKLOADS)
    parser.add_argument("--places", choices=WORKLOADS)
    parser.add_argument("--grown", choices=WORKLOADS)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--scale", type=float, default=1, help="N times this")
    parser.add_argument("--most", type=int, default=25, help="places to show")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.workloads = options.build / "bench" / "workloads"
    options.library = (options.library or options.build / "bench" / "scaling" / "libhakmem-counting.so").resolve()
    if options.check:
        return check(options)
    if options.places or options.grown:
        return show(options, measure(options, options.places, options.threads) if options.places else grown(options))
    return table(options)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Weakens the order of one access at a time, and expects the explorer to notice.

  orders.py --source SRC --work DIR --objects A.o,B.o... [--jobs N] [--only TEXT] [--sample N | --deep SECONDS] [--all] -- COMPILER FLAGS...

sites.py finds the accesses in the sources.  Each is made relaxed; one that is sequentially consistent is also made acquire, release
or both.  The test fails if the explorer does not notice a weakening and kept.txt, beside this file, has no reason for it.
Before that, one short run shows which accesses no scenario reaches: kept.txt must have a reason for each of these too, so that a new
access in code that is not explored is found at once, whichever weakenings a sample contains.
  --sample  at most this many, spread over those made relaxed that the explorer is expected to notice
  --deep    if the quick searches find nothing, also a preemption and a stale read together, for this many seconds a scenario
  --all     also those that kept.txt has a reason for
"""
import argparse
import collections
import fnmatch
import os
import shutil
import subprocess
import sys

import seeded
import sites
from seeded import seeding

# The few scenarios that find what needs both a preemption and a stale read.
BOTH = ["two_words", "holes_meanwhile", "narrow.busy.other.one", "narrow.exiting.other.one", "narrow.idle.other.two",
        "narrow.busy.same.two", "narrow.busy.same.others"]


def searches(program, settings):
    """The searches, cheapest first.  The cells of the product, whose names have a dot, take minutes."""
    small = [name for name in seeded.scenarios(program) if "." not in name]
    yield from (["-b", "0", "-w", "1"], ["-t", "20", *small], ["-b", "1", "-w", "1", "-t", "20", *BOTH], ["-b", "1"], [])
    if settings.deep:
        yield ["-b", "1", "-w", "1", "-t", settings.deep]


def kept_reasons():
    """The lines of kept.txt: pattern of a site | orders | reason."""
    reasons = []
    for line in (seeded.HERE / "kept.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, orders, reason = (part.strip() for part in line.split("|"))
            reasons.append((pattern, orders.split(), reason))
    return reasons


def reason_for(site, order, reasons):
    return next((reason for pattern, orders, reason in reasons if order in orders and fnmatch.fnmatchcase(site.name, pattern)), None)


Weakening = collections.namedtuple("Weakening", "name site order")


def noticed(item, place, settings):
    """The first scenario that fails, and how; None if none does."""
    program = seeded.build(place, item.site.file, sites.with_order(settings.source, item.site, item.order), settings)
    found = (seeded.failure(program, search, 7200) for search in searches(program, settings))
    return next((f"{scenario}: {how}" for scenario, how in filter(None, found)), None)


def judged(item, place, settings, reasons):
    reason = reason_for(item.site, item.order, reasons)
    if reason is not None and not settings.all:
        return seeding.Outcome(True, "kept", reason)
    found = noticed(item, place, settings)
    if found is not None:
        return seeding.Outcome(reason is None, "found" if reason is None else "FOUND AFTER ALL", found)
    return seeding.Outcome(reason is not None, "NOT FOUND" if reason is None else "kept", reason or "and kept.txt has no reason for it")


def chosen(settings, reasons):
    items = [Weakening(f"{site.name}: {site.order} as {order}", site, order)
             for site in sites.all_sites(settings.source) for order in site.weaker]
    if settings.only is not None:
        return [item for item in items if settings.only in f"{item.site.name} {item.order}"]
    if settings.sample:
        items = [item for item in items if item.order == "relaxed" and reason_for(item.site, item.order, reasons) is None]
        return items[:: max(1, -(-len(items) // settings.sample))]
    return items


# Notes in a file that a site was reached: the explorer runs scenarios in processes of their own, which end at once.
REACHED = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
static unsigned char *reached;
__attribute__((constructor, no_sanitize("thread"))) static void reached_open(void) {
  int file = open(getenv("REACHED"), O_RDWR);
  reached = mmap(NULL, %d, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}
__attribute__((no_sanitize("thread"))) static inline void site_reached(unsigned number) { reached[number] = 1; }
"""


def not_reached(all_sites, settings):
    """The sites that no scenario comes to."""
    place = settings.work / "reached"
    shutil.rmtree(place, ignore_errors=True)
    numbered = list(enumerate(all_sites))
    for file in {site.file for site in all_sites}:
        text = (settings.source / file).read_text()
        for number, site in reversed([pair for pair in numbered if pair[1].file == file]):
            text = f"{text[:site.start]}(site_reached({number}u), {text[site.start:site.end]}){text[site.end:]}"
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(text)
    (place / "reached.h").write_text(REACHED % len(all_sites))
    reached = place / "reached.bytes"
    reached.write_bytes(bytes(len(all_sites)))
    settings = argparse.Namespace(**{**vars(settings), "command": [*settings.command, "-include", str(place / "reached.h")]})
    program = seeded.compiled(place, settings)
    for search in ["-b", "0"], ["-b", "1", "growth_and_purge", "purged_*", "two_purges"]:
        subprocess.run([program, "-q", *search], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "REACHED": str(reached)})
    found = reached.read_bytes()
    shutil.rmtree(place)
    return [site for number, site in numbered if not found[number]]


def main():
    settings = seeding.arguments(__doc__, (["--sample"], {"type": int}), (["--deep"], {}), (["--all"], {"action": "store_true"}))
    reasons = kept_reasons()
    all_sites = sites.all_sites(settings.source)
    unused = [pattern for pattern, _, _ in reasons if not any(fnmatch.fnmatchcase(site.name, pattern) for site in all_sites)]
    for pattern in unused:
        print(f"kept.txt has a reason for {pattern}, which is no site")
    unexplored = [site for site in not_reached(all_sites, settings) if reason_for(site, "relaxed", reasons) is None]
    for site in unexplored:
        print(f"NOT REACHED {site.name}: no scenario comes here, and kept.txt has no reason for it")
    good = seeding.run(chosen(settings, reasons), lambda item, place: judged(item, place, settings, reasons), settings)
    return 0 if good and not unused and not unexplored else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Makes one ordered access after the other weaker, and expects the explorer to notice.

  orders.py --source SRC --work DIR --objects A.o,B.o... [--jobs N] [--only TEXT] [--sample N | --deep SECONDS] [--all] -- COMPILER FLAGS...

Sites are found in the sources: sites.py.  Each is made relaxed, and where it is sequentially consistent also acquire, release or
both alone.  One that the explorer does not notice has a reason in kept.txt, beside this file, or the test fails.
  --sample  every site of which a weakening is expected to be found quickly, up to so many
  --deep    where the quick searches find nothing, a preemption and a stale read together, so many seconds a scenario
  --all     tries those with a reason too
"""
import fnmatch
import subprocess
import sys

import seeded
import sites

# The cheapest first; what needs a preemption and a stale read at once is found by few scenarios.
BOTH = ["two_words", "holes_meanwhile", "narrow.busy.other.one", "narrow.exiting.other.one", "narrow.idle.other.two",
        "narrow.busy.same.two"]
QUICK = [["-b", "0", "-w", "1"], ["-b", "1", "-w", "1", "-t", "20", *BOTH], ["-b", "1"], []]


def kept_reasons():
    """Lines of: pattern of a site | orders | reason."""
    reasons = []
    for line in (seeded.HERE / "kept.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, orders, reason = (part.strip() for part in line.split("|"))
            reasons.append((pattern, orders.split(), reason))
    return reasons


def reason_for(site, order, reasons):
    return next((reason for pattern, orders, reason in reasons if order in orders and fnmatch.fnmatchcase(site.name, pattern)), None)


def attempt(site, order, settings):
    """The scenario that notices and how; None if none does."""
    name = f"{site.name} {order}".replace(" ", "_").replace("/", "_")
    program = seeded.build(name, site.file, sites.with_order(settings.source, site, order), settings)
    searches = QUICK + ([["-b", "1", "-w", "1", "-t", settings.deep]] if settings.deep else [])
    try:
        for search in searches:
            found = seeded.failure(program, search, 7200)
            if found is not None:
                return found
        return None
    finally:
        seeded.remove(name, settings)


def judged(item, settings, reasons):
    """Whether it is as it should be, and a word and text about it."""
    site, order = item
    reason = reason_for(site, order, reasons)
    if reason is not None and not settings.all:
        return True, "kept", reason
    try:
        found = attempt(site, order, settings)
    except (OSError, subprocess.SubprocessError) as error:
        return False, "BROKEN", str(error)
    if found is not None:
        return reason is None, "found" if reason is None else "FOUND AFTER ALL", f"{found[0]}: {found[1]}"
    return reason is not None, "NOT FOUND" if reason is None else "kept", reason or "and kept.txt has no reason for it"


def chosen(settings, reasons):
    items = [(site, order) for site in sites.all_sites(settings.source) for order in site.weaker]
    if settings.only is not None:
        return [item for item in items if settings.only in f"{item[0].name} {item[1]}"]
    if settings.sample:
        items = [item for item in items if item[1] == "relaxed" and reason_for(*item, reasons) is None]
        return items[:: max(1, -(-len(items) // settings.sample))]
    return items


def main():
    settings = seeded.arguments(__doc__, (["--sample"], {"type": int}), (["--deep"], {}), (["--all"], {"action": "store_true"}))
    reasons = kept_reasons()
    items = chosen(settings, reasons)
    counts = {}
    passed = bool(items)
    for (site, order), (good, word, text) in seeded.in_parallel(lambda item: judged(item, settings, reasons), items, settings):
        passed &= good
        counts[word] = counts.get(word, 0) + 1
        print(f"{word:9} {site.name}: {site.order} as {order}: {text[:200]}", flush=True)
    unused = [r[0] for r in reasons if not any(fnmatch.fnmatchcase(site.name, r[0]) for site in sites.all_sites(settings.source))]
    for pattern in unused:
        print(f"kept.txt has a reason for {pattern}, which is no site")
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    return 0 if passed and not unused else 1


if __name__ == "__main__":
    sys.exit(main())

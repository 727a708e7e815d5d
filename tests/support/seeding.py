"""Seeds faults: replaces one text of the sources at a time, and checks that something fails.

The tables of faults (tests/mutation, tests/explore, tests/fuzz) and the explorer's weaker memory orders share this module: it checks that
each entry still fits the sources, makes the changed source, runs several at a time, and prints.  What is built and run is up to them.
An entry is a named tuple with at least `name`, `file` (below src), `text` (what the file has exactly once) and `instead`.
"""
import argparse
import collections
import concurrent.futures
import filecmp
import os
import pathlib
import queue
import shutil
import subprocess
import sys


# --- the entries and the sources ---

def misfit(fault, source):
    """Returns what is wrong with an entry, or None."""
    path = source / fault.file
    count = path.read_text().count(fault.text) if path.exists() else 0
    if count != 1:
        return f"its text occurs {count} times in src/{fault.file}, not once"
    return "it changes nothing" if fault.text == fault.instead else None


def misfits(faults, source):
    """Returns what is wrong with a table, one line for each fault."""
    names = collections.Counter(fault.name for fault in faults)
    wrong = [f"{name}: {count} faults have this name" for name, count in names.items() if count > 1]
    return wrong + [f"{fault.name}: {why}" for fault in faults if (why := misfit(fault, source))]


def changed(fault, source):
    """Returns the text of the fault's file with the fault in it."""
    why = misfit(fault, source)
    if why:
        raise ValueError(why)
    return (source / fault.file).read_text().replace(fault.text, fault.instead)


# --- where they are seeded ---

def overlay(place, file, text):
    """Makes `place` a folder with only this source: a compiler that searches there first finds it in place of the real one."""
    shutil.rmtree(place, ignore_errors=True)
    (place / file).parent.mkdir(parents=True)
    (place / file).write_text(text)


def copy_tree(source, target, skipped=frozenset()):
    """Makes target equal to source, except for the names to skip; files that are equal already keep their times."""
    target.mkdir(parents=True, exist_ok=True)
    skipped = {"__pycache__", *skipped}
    for entry in sorted(source.iterdir()):
        if entry.name in skipped:
            continue
        to = target / entry.name
        if entry.is_dir():
            copy_tree(entry, to)
        elif not to.exists() or not filecmp.cmp(entry, to, shallow=False):
            shutil.copy(entry, to)
    for entry in target.iterdir():
        if entry.name in skipped or not (source / entry.name).exists():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


# --- several at a time ---

def in_parallel(work, items, places):
    """Calls work(item, place), one at a time in each place; yields pairs of an item and its result, in the order of completion."""
    free = queue.SimpleQueue()
    for place in places:
        free.put(place)

    def one(item):
        place = free.get()
        try:
            return item, work(item, place)
        finally:
            free.put(place)

    with concurrent.futures.ThreadPoolExecutor(len(places)) as threads:
        for done in concurrent.futures.as_completed([threads.submit(one, item) for item in items]):
            yield done.result()


Outcome = collections.namedtuple("Outcome", "good word text")


def run(items, attempt, settings):
    """Prints the Outcome of attempt(item, place) for each item, and the count of each word; returns whether there were items, all good."""
    places = [settings.work / str(number) for number in range(settings.jobs)]

    def guarded(item, place):
        try:
            return attempt(item, place)
        except (ValueError, OSError, subprocess.SubprocessError) as error:
            return Outcome(False, "BROKEN", str(error))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    words = collections.Counter()
    good = bool(items)
    for item, outcome in in_parallel(guarded, items, places):
        good &= outcome.good
        words[outcome.word] += 1
        print(f"{outcome.word:9} {item.name}: {outcome.text[:200]}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(words.items())) + f", of {len(items)}")
    return good


# --- a program that seeds faults and compiles a few files itself ---

def arguments(text, *more):
    """Parses the arguments of such a program; the compiler and its flags follow `--`; `more`: further options, as argparse takes them."""
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required="--check" not in given)
    parser.add_argument("--objects", type=lambda text: text.split(","), required="--check" not in given)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", help="what to try alone: part of a name, or another word of the entry")
    for names, options in more:
        parser.add_argument(*names, **options)
    settings = parser.parse_args(given[:end])
    settings.command = given[end + 1:]
    return settings


def main(text, faults, attempt):
    """Returns the exit status of a program that must find all faults; attempt(fault, place, settings) returns what found one, or None."""
    settings = arguments(text, (["--check"], {"action": "store_true", "help": "only whether every entry still fits the sources"}))
    wrong = misfits(faults, settings.source)
    for line in wrong:
        print(line, file=sys.stderr)
    if settings.check or wrong:
        print(f"{len(faults)} faults, {len(wrong)} that do not fit")
        return 1 if wrong else 0

    def one(fault, place):
        found = attempt(fault, place, settings)
        return Outcome(found is not None, "NOT FOUND" if found is None else "found", found or "nothing fails")

    chosen = [fault for fault in faults if settings.only is None or settings.only in fault or settings.only in fault.name]
    return 0 if run(chosen, one, settings) else 1

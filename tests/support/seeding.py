"""What the programs that seed faults into the sources share: their arguments, the changed source, and several at a time."""
import argparse
import concurrent.futures
import os
import pathlib
import sys


def arguments(text, *more):
    """What such a program is called with, the compiler and its flags behind `--`; `more`: further options, as argparse takes them."""
    given = sys.argv[1:]
    end = given.index("--")
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--objects", type=lambda text: text.split(","), required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", help="what to try alone: part of a name")
    for names, options in more:
        parser.add_argument(*names, **options)
    settings = parser.parse_args(given[:end])
    settings.command = given[end + 1:]
    return settings


def changed(file, text, instead, settings):
    """The source `file` with another text in place of one that it has once."""
    source = (settings.source / file).read_text()
    if source.count(text) != 1:
        raise ValueError(f"its text occurs {source.count(text)} times in {file}: the table is out of date")
    return source.replace(text, instead)


def place(work, file, text):
    """Puts `text` where the compiler, told to look in `work` first, finds it in place of the source `file`."""
    (work / file).parent.mkdir(parents=True, exist_ok=True)
    (work / file).write_text(text)


def in_parallel(work, items, settings):
    """Pairs of an item and what came of it, in order."""
    with concurrent.futures.ThreadPoolExecutor(settings.jobs) as pool:
        yield from zip(items, pool.map(work, items))

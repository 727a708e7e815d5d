#!/usr/bin/env python3
"""Programs that define some forms of operator new and operator delete themselves: the other forms must call those, as often as the
C++ library alone does.

replaced.cpp calls every form and prints which of the program's own forms each call reached.  The oracle is that program without
hakmem.  Under a way in that has a loader (preloaded, linked) the own forms are preloaded, each a library of its own, so that any
set of them costs no link; in the archive's programs they are linked in, before it and after it.
"""
import argparse
import itertools
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

FORMS = 20
# Forms that others call: new, new[], delete, delete[], and the same with an alignment.
PLAIN, ALIGNED = (0, 1, 8, 9), (4, 5, 14, 15)


def subsets(forms):
    return (set(chosen) for count in range(len(forms) + 1) for chosen in itertools.combinations(forms, count))


def all_sets():
    """None, one, all but one, all; every subset of the plain and of the aligned called forms, and each pair across the two."""
    everything = set(range(FORMS))
    yield from ({form} for form in everything)
    yield from (everything - {form} for form in everything)
    yield everything
    yield from subsets(PLAIN)
    yield from subsets(ALIGNED)
    yield from ({a, b} for a in PLAIN for b in ALIGNED)


def linked_sets():
    """What needs a link each: one, all but one, all, every second."""
    everything = set(range(FORMS))
    yield set()
    yield everything
    yield from ({form} for form in everything)
    yield from (everything - {form} for form in (*PLAIN, *ALIGNED))
    yield from ({a, b} for a, b in zip(PLAIN, PLAIN[2:] + PLAIN[:2]))
    yield {0, 4, 8, 14}


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.oracles = {}

    def run(self, program, preload):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "HAKMEM_"))}
        if preload:
            env["LD_PRELOAD"] = ":".join(map(str, preload))
        command = [*self.options.emulator, program]
        done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=300)
        return f"{done.stdout}{done.stderr}exit {done.returncode}\n"

    def own(self, forms, suffix):
        """The paths of the forms' libraries or objects."""
        given = {word.split("=")[0].split("/")[-1]: word.split("=")[-1] for word in self.options.forms}
        return [given[f"replaced_{form}{suffix}"] for form in sorted(forms)]

    def oracle(self, forms):
        key = frozenset(forms)
        if key not in self.oracles:
            text = self.run(self.options.plain, self.own(forms, ".so"))
            if not text.endswith("exit 0\n"):
                raise SystemExit(f"the oracle fails for {sorted(forms)}:\n{text}")
            self.oracles[key] = text
        return self.oracles[key]

    def link(self, forms, static, last):
        out = self.folder / "program"
        objects = self.own(forms, ".o")
        parts = [self.options.object, self.options.archive, *objects] if last else [*objects, self.options.object, self.options.archive]
        command = [*self.options.compiler, *(["-static"] if static else ["-rdynamic"]), "-o", out, *parts, "-pthread"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        return out, done.stderr if done.returncode else ""

    def results(self):
        """(title, forms, text) for each set and way in."""
        way, library = self.options.way, self.options.library
        sets = linked_sets() if way == "archive" else all_sets()
        for number, forms in enumerate(itertools.islice(sets, 0, None, self.options.every)):
            if way == "preloaded":
                yield way, forms, self.run(self.options.plain, [*self.own(forms, ".so"), library])
            elif way == "linked":
                yield way, forms, self.run(self.options.linked, self.own(forms, ".so"))
            else:
                static, last = number % 2 == 0, number % 3 == 0
                program, complaint = self.link(forms, static, last)
                title = f"archive{', static' if static else ''}{', own forms last' if last else ''}"
                yield title, forms, complaint or self.run(program, [])


def difference(want, got):
    for line, (a, b) in enumerate(itertools.zip_longest(want.splitlines(), got.splitlines(), fillvalue="(nothing)"), 1):
        if a != b:
            return f"line {line}: {b}\n    the C++ library: {a}"
    return "nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=("preloaded", "linked", "archive"))
    parser.add_argument("--plain", type=pathlib.Path, required=True, help="the program, without hakmem")
    parser.add_argument("--linked", type=pathlib.Path, help="the program, linked with it")
    parser.add_argument("--object", type=pathlib.Path, help="the program's object")
    parser.add_argument("--library", type=pathlib.Path, help="what to preload")
    parser.add_argument("--archive", type=pathlib.Path)
    parser.add_argument("--compiler", nargs="*", default=["c++"])
    parser.add_argument("--emulator", type=shlex.split, default=[], help="the words before a program")
    parser.add_argument("--forms", nargs="*", default=[], help="replaced_N.so, and replaced_N.o=path")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try only each Nth set, where programs are slow to run")
    options = parser.parse_args()
    count = failures = reached = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        for title, forms, text in bench.results():
            count += 1
            want = bench.oracle(forms)
            reached += " x " in want
            if text != want:
                failures += 1
                print(f"{title}, own forms {sorted(forms)}: {difference(want, text)}")
    print(f"replaced: {count} sets, {reached} with calls of own forms, {failures} failures")
    return 0 if failures == 0 and reached > count / 2 else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks that a library has the names of the library that it replaces.

The page that describes each name must mention all of them.  A line of the list is a name, or a name with "left out: " and a reason;
the library must not have a name that is listed as left out.
Exit status 0 if all holds, 1 with one line for each name that is not as listed.
"""
import argparse
import fnmatch
import pathlib
import re
import subprocess


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", type=pathlib.Path, required=True)
    parser.add_argument("--soname", required=True)
    parser.add_argument("--doc", type=pathlib.Path, required=True, help="has each name between backquotes, or a pattern of it")
    parser.add_argument("list", type=pathlib.Path)
    options = parser.parse_args()
    table = subprocess.run(["nm", "-D", "--defined-only", options.lib], check=True, stdout=subprocess.PIPE, text=True).stdout
    there = {line.split()[-1] for line in table.splitlines()}
    dynamic = subprocess.run(["readelf", "-dW", options.lib], check=True, stdout=subprocess.PIPE, text=True).stdout
    wrong = [] if f"soname: [{options.soname}]" in dynamic else [f"the soname is not {options.soname}"]
    told = re.findall(r"`([^`\s]+)`", options.doc.read_text())
    names = 0
    for line in options.list.read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name or name == "#":
            continue
        names += 1
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in told):
            wrong.append(f"{name} is not in {options.doc.name}")
        if rest and not (rest.startswith("left out: ") and len(rest) > 20):
            wrong.append(f"{name}: a reason is to follow 'left out: '")
        if rest and name in there:
            wrong.append(f"{name} is there, and listed as left out")
        if not rest and name not in there:
            wrong.append(f"{name} is not there")
    if names < 20:
        wrong.append(f"only {names} names are listed")
    for text in wrong:
        print(f"{options.lib.name}: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
"""Reads every FDE of every library and program of the system with the unwinder's reader, and compares the rules of some files,
row by row, with what readelf (binutils) computes.

The sample is the same each time: some files that are always in it, and of those small enough for readelf the ones with the lowest
checksums of their names.  Exit status 77 (not run) if there is no readelf.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import zlib

ALWAYS = ["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libgcc_s.so.1", "libcrypto.so.3"]
SIZE_MOST = 2 << 20
NAMES = {"rax": 0, "rdx": 1, "rcx": 2, "rbx": 3, "rsi": 4, "rdi": 5, "rbp": 6, "rsp": 7, "rip": 16, **{f"r{n}": n for n in range(8, 16)}}
REGISTERS = {"x86_64": 17, "aarch64": 32}


def files(roots):
    found = (path for root in roots for path in pathlib.Path(root).rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(str(path) for path in found if ".so" in path.name or path.stat().st_mode & 0o111)


def sample_of(paths, count):
    always = [path for path in paths if pathlib.Path(path).name in ALWAYS]
    small = [path for path in paths if ".so" in path and 20000 < pathlib.Path(path).stat().st_size < SIZE_MOST]
    return always + sorted(small, key=lambda path: zlib.crc32(path.encode()))[:count]


def number(word, machine):
    return int(word[1:]) if machine == "aarch64" and word[0] == "x" else 31 if word == "sp" else NAMES.get(word)


def rule(text, ra, machine):
    """The rule as tables.c prints it; None for a register that keeps its value, or that is not mentioned.

    readelf has one letter for undefined and not mentioned; on x86-64 the return address is always mentioned."""
    if text == "u" and ra and machine == "x86_64":
        return "u"
    if text in ("u", "s"):
        return None
    return text


def readelf_rows(path, machine):
    """Yields each row that readelf prints: an address, the CFA, and the rules by register."""
    text = subprocess.run(["readelf", "--debug-dump=frames-interp", path], capture_output=True, text=True, errors="replace").stdout
    columns, body, ra_column = [], False, 16 if machine == "x86_64" else 30
    for line in text.splitlines():
        words = re.sub(r" \(\w+\)", "", line).split()  # without the register's other name
        if len(words) > 3 and words[3] in ("FDE", "CIE"):
            body = words[3] == "FDE"
            header = re.search(r"pc=([0-9a-f]+)\.\.([0-9a-f]+)", line)
            empty = header and header[1] == header[2]
            continue
        if words[:2] == ["LOC", "CFA"]:
            columns = [ra_column if word == "ra" else number(word, machine) for word in words[2:]]
        elif body and not empty and words and re.fullmatch("[0-9a-f]{16}", words[0]):
            rules = {}
            for column, word in zip(columns, words[2:]):
                if column is not None and column < REGISTERS[machine] and (value := rule(word, column == ra_column, machine)):
                    rules[column] = value
            cfa = re.match(r"(\w+?)([+-]\d+)$", words[1])
            yield int(words[0], 16), f"{number(cfa[1], machine)}{cfa[2]}" if cfa else words[1], rules


def our_rows(tool, path, machine):
    rows = []
    for line in subprocess.run([tool, "-p", path], capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        rows.append((int(words[0], 16), int(words[1], 16), words[2], {int(r): v for r, v in (word.split("=") for word in words[3:]) if v != "u" or machine == "x86_64"}))
    return rows


def compare(tool, path, machine):
    """Returns how many rows were compared, and how many of them differ."""
    starts = {}
    for first, last, cfa, rules in our_rows(tool, path, machine):
        starts[first] = (last, cfa, rules)
    theirs = {}
    for address, cfa, rules in readelf_rows(path, machine):
        theirs[address] = (cfa, rules)  # the last of several for one address counts
    ordered, wrong, at = sorted(starts), 0, 0
    for address in sorted(theirs):
        while at + 1 < len(ordered) and ordered[at + 1] <= address:
            at += 1
        last, cfa, rules = starts[ordered[at]] if ordered else (0, "", {})
        if not ordered or address < ordered[at] or address > last or (cfa, rules) != theirs[address]:
            wrong += 1
            if wrong <= 3:
                print(f"  {path}: {address:#x}: {cfa} {rules}, readelf: {theirs[address]}")
    return len(theirs), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--machine", default="x86_64", choices=sorted(REGISTERS))
    parser.add_argument("--sample", type=int, default=12, help="files that are compared, beside those that always are")
    parser.add_argument("roots", nargs="*", default=["/usr/lib", "/usr/bin"])
    options = parser.parse_args()
    if not shutil.which("readelf"):
        print("not run: readelf is missing: install the Debian package binutils")
        return 77
    paths = files(options.roots)
    done = subprocess.run(["xargs", "-d", "\\n", options.tool], input="\n".join(paths), capture_output=True, text=True)
    sums = [[int(n) for n in re.findall(r"(\d+) (?:FDEs|rows|failures)", line)] for line in done.stdout.splitlines()]
    fdes, rows, failures = (sum(column) for column in zip(*sums)) if sums else (0, 0, 0)
    print(f"{len(sums)} files, {fdes} FDEs, {rows} rows, {failures} without rules")
    print(done.stderr, end="")
    compared = wrong = 0
    for path in sample_of(paths, options.sample):
        counts = compare(options.tool, path, options.machine)
        compared, wrong = compared + counts[0], wrong + counts[1]
    print(f"{compared} rows compared with readelf's, {wrong} differ")
    return int(done.returncode != 0 or failures > 0 or wrong > 0 or fdes < 10000 or compared < 10000)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Samples the stacks of Debian's programs, and counts those whose walk reaches the call of main or of the thread's function.

At least 95 % of each program's samples must reach it, and as many must agree with what glibc's backtrace() finds from there.  A case
fails if its program is missing, or if there are too few samples to judge.
"""
import argparse
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SHARE, FEWEST = 0.95, 100

PYTHON = """
import json, re, threading, zlib
def work(n):
    for _ in range(n):
        data = {str(i): [i, i * 1.5, "x" * (i % 40)] for i in range(4000)}
        text = json.dumps(data)
        json.loads(text)
        sorted(text.split(","), key=lambda s: s[::-1])
        re.findall(r"[0-9]+", text)
        zlib.compress(text.encode())
threads = [threading.Thread(target=work, args=(12,)) for _ in range(3)]
[t.start() for t in threads]
work(12)
[t.join() for t in threads]
"""
PERL = "my %h; for my $i (1..5000000) { $h{$i % 5000} .= chr(65 + $i % 26); } " \
       "my @s = sort { $h{$a} cmp $h{$b} } keys %h; my $n = 0; for (@s) { $n++ while $h{$_} =~ /[AEI][^Z]/g } print $n;"
SQL = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<3000000) " \
      "SELECT sum(length(y)) FROM (SELECT group_concat(x) y, x%1000 g FROM c GROUP BY g ORDER BY y);"


def commands(source):
    gcc = shutil.which("gcc") or "gcc"
    return {
        "python3": ["/usr/bin/python3", "-c", PYTHON],
        "perl": ["/usr/bin/perl", "-e", PERL],
        "sqlite3": ["/usr/bin/sqlite3", ":memory:", SQL],
        "cc1": [gcc, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-S", "-o", "/dev/null", f"-I{source}/src", f"-I{source}/include", f"{source}/src/hakmem.c"],
        "git": ["/usr/bin/git", "hash-object", "--no-filters", "--stdin-paths"],
    }


def run(name, command, library):
    """Runs the program; returns its counts, summed over its processes."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        environment = {**os.environ, "LD_PRELOAD": library, "SAMPLER_OUT": str(out)}
        paths = "\n".join(["/usr/bin/git"] * 100) if name == "git" else ""
        subprocess.run(command, env=environment, input=paths, stdout=subprocess.DEVNULL, check=True, text=True, timeout=300)
        sums = collections.Counter()
        for line in out.read_text().splitlines() if out.exists() else ():
            words = line.split()
            if words[0] == name:
                sums.update(dict(zip(("samples", "reached", "same", "pointers", "wrong"), map(int, words[1:]))))
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="the sampler")
    parser.add_argument("--source", required=True, type=pathlib.Path, help="the tree, as something to compile")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    failed = 0
    print("program    samples  to main  as backtrace()  frame pointer leads somewhere  and not to the caller")
    for name, command in commands(options.source).items():
        if options.names and name not in options.names:
            continue
        try:
            counts = run(name, command, os.path.abspath(options.lib))
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{name}: FAIL: {error}")
            failed += 1
            continue
        total = counts["samples"]
        good = total >= FEWEST and min(counts["reached"], counts["same"]) >= SHARE * total
        shares = [f"{counts[key] / max(total, 1):.4f}" for key in ("reached", "same", "pointers", "wrong")]
        print(f"{name:10} {total:7}  {'  '.join(shares)}{'' if good else '  FAIL'}")
        failed += not good
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

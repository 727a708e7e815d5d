#!/usr/bin/env python3
"""Measures what a small program costs its emulator, with hakmem and without: the emulator's largest resident set.

qemu-user before 8.0 keeps a record of each page that a program has mapped, used or not, so address space that hakmem reserves costs
memory there.  With the library preloaded the emulator may take at most twice as much as without.

    emulator.py --library LIBRARY -- EMULATOR... PROGRAM
"""
import argparse
import os
import sys

RUNS = 3
MOST = 2.0


def resident(command):
    """The largest resident set of a run, in KiB."""
    pid = os.fork()
    if pid == 0:
        os.execvp(command[0], command)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"emulator: {' '.join(command)} ended with status {status:#x}")
    return usage.ru_maxrss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    emulator, program = arguments.command[:-1], arguments.command[-1]
    plain = max(resident([*emulator, program]) for _ in range(RUNS))
    loaded = max(resident([*emulator, "-E", f"LD_PRELOAD={arguments.library}", program]) for _ in range(RUNS))
    print(f"emulator: {loaded} KiB, {plain} KiB on the system malloc")
    return 0 if loaded <= MOST * plain else 1


if __name__ == "__main__":
    sys.exit(main())

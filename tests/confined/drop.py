#!/usr/bin/env python3
"""A large program, CPython, frees much memory, drops privileges, and checks all of its threads.

Each way of dropping runs in a separate process.  ctest runs this with hakmem preloaded; without root, only the ways that need no
root are tried.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import time

NOBODY = 65534
LIBC = ctypes.CDLL(None, use_errno=True)
WAYS = {
    "setresuid": lambda: os.setresuid(NOBODY, NOBODY, NOBODY),
    "setuid": lambda: os.setuid(NOBODY),
    "setreuid": lambda: os.setreuid(NOBODY, NOBODY),
    "seteuid": lambda: os.seteuid(NOBODY),
    "setresgid": lambda: os.setresgid(NOBODY, NOBODY, NOBODY),
    "setgid": lambda: os.setgid(NOBODY),
    "setgroups": lambda: os.setgroups([NOBODY]),
    "initgroups": lambda: os.initgroups("nobody", NOBODY),
    "no_new_privs": lambda: LIBC.prctl(38, 1, 0, 0, 0),
}
NEED_NO_ROOT = {"no_new_privs"}
FIELDS = ("Uid", "Gid", "Groups", "CapPrm")


def threads():
    found = {}
    for entry in os.listdir("/proc/self/task"):
        try:
            text = pathlib.Path(f"/proc/self/task/{entry}/status").read_text()
        except OSError:
            continue  # the thread has ended
        found[int(entry)] = dict(line.split(":", 1) for line in text.splitlines())
    return found


def free_much():
    block = [bytearray(1000) for _ in range(60000)]
    del block


def drop(way):
    free_much()
    if len(threads()) != 2:
        return f"{len(threads())} threads before, which proves nothing"
    WAYS[way]()
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:  # also checks threads that are started meanwhile
        free_much()
        found = threads()
        own = found.pop(os.getpid())
        for other in found.values():
            for field in FIELDS:
                if other[field] != own[field]:
                    return f"a thread has {field}{other[field]}, the process{own[field]}"
            if int(other["CapEff"], 16) != 0 or other["Seccomp"].strip() != "2":
                return "a thread has power"
    return ""


def main():
    if len(sys.argv) > 1:
        problem = drop(sys.argv[1])
        print(f"{sys.argv[1]}: {problem or 'nothing stays'}")
        return 1 if problem else 0
    ways = [way for way in WAYS if os.geteuid() == 0 or way in NEED_NO_ROOT]
    for way in WAYS.keys() - set(ways):
        print(f"{way}: not run, needs root")
    return max(subprocess.run([sys.executable, __file__, way], check=False).returncode for way in ways)


if __name__ == "__main__":
    sys.exit(main())

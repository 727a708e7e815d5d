#!/usr/bin/env python3
"""A program in a control group with a memory limit: what hakmem detects, gives back and reports; and hakmem's own hard limit.

Takes the paths of the library and of the secure library, and with --pressure that of pressure.c's program.  Exit status 77, which
ctest shows as skipped, if no group can be made.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys

# Between what the phases need near a limit (less than 180 MiB) and what they use if nothing goes back (247 MiB and more).
LIMIT = 216 << 20
LONG_MS = "600000"
PROGRAM = """
import sys
def phase(size):
    return [bytes([1]) * size for _ in range(120_000_000 // size)]
kept = []
for size in (2000, 300, 7000, 90000, 600):
    blocks = phase(size)
    kept += blocks[::400]
    del blocks
"""
# A process that rests with idle memory, which its settings keep, and a neighbour that grows, slowly near the limit: together they
# exceed it.
RESTS = """
import sys
block = b"1" * (80 << 20)
del block
print("rests", flush=True)
sys.stdin.read()
"""
GROWS = """
import time
blocks = []
for count in range(150):
    blocks.append(b"1" * (1 << 20))
    if count > 50:
        time.sleep(0.05)
"""
REFUSED = """
blocks = []
try:
    while len(blocks) < 200:
        blocks.append(bytearray(1000000))
except MemoryError:
    print(len(blocks))
"""


def group_make():
    """Makes a group with the limit, of whichever cgroup version limits memory here; None if it cannot."""
    for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = pathlib.Path(root) / f"hakmem-test-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / file).write_text(str(LIMIT))
            for swap, amount in (("memory.swappiness", "0"), ("memory.swap.max", "0")):
                if (folder / swap).exists():
                    (folder / swap).write_text(amount)
            return folder
        except OSError as error:
            print(f"{folder}: {error.strerror}")
            if folder.is_dir():
                folder.rmdir()
    return None


def run(library, program, folder=None, **more):
    return run_command(library, [sys.executable, "-c", program], folder, PYTHONMALLOC="malloc", **more)


def run_command(library, command, folder, **more):
    def enter():
        if folder:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    environment = {**os.environ, "LD_PRELOAD": library, **more}
    return subprocess.run(command, env=environment, preexec_fn=enter, capture_output=True, text=True, check=False, timeout=500)


def own_limits(library):
    refused = run(library, REFUSED, HAKMEM_LIMIT_HARD="100M")
    assert refused.returncode == 0 and 50 < int(refused.stdout) < 101, refused


def neighbour_lives(library, folder, **more):
    """Whether both survive, the process that rests and the one that grows."""

    def enter():
        (folder / "cgroup.procs").write_text(str(os.getpid()))

    environment = {**os.environ, "PYTHONMALLOC": "malloc", "HAKMEM_DECAY_MS": "-1", "HAKMEM_KEEPER": "2", "LD_PRELOAD": library, **more}
    with subprocess.Popen([sys.executable, "-c", RESTS], env=environment, preexec_fn=enter, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as rests:
        assert rests.stdout.readline() == b"rests\n"
        grown = subprocess.run([sys.executable, "-c", GROWS], preexec_fn=enter, check=False, timeout=500)
        rests.stdin.close()
        return rests.wait(timeout=500) == 0 and grown.returncode == 0


def near_is_told(library, program, folder):
    told = run_command(library, [program, "-x", "pressure_near_in_a_group"], folder, GROUP_LIMIT=str(LIMIT))
    assert told.returncode == 0, told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pressure", required=True)
    parser.add_argument("libraries", nargs="+")
    options = parser.parse_args()
    library = options.libraries[0]
    for each in options.libraries:
        own_limits(each)
    folder = group_make()
    if folder is None:
        print("skipped: no control group that limits memory can be made here")
        return 77
    try:
        # Memory that goes back with time, on a slow machine, or as the heap grows would save the program too.
        alone = {"HAKMEM_STATS": "1", "HAKMEM_DECAY_MS": LONG_MS, "HAKMEM_IDLE_PERCENT": "1000000"}
        done = run(library, PROGRAM, folder, **alone)
        assert done.returncode == 0, done
        said = [line for line in done.stderr.splitlines() if line.startswith("gave back ")]
        assert len(said) == 1 and " % of memory." in said[0], done.stderr
        off = run(library, PROGRAM, folder, **alone, HAKMEM_CONTAINER="0")
        assert off.returncode == -signal.SIGKILL, off
        half = run(library, REFUSED, folder, HAKMEM_LIMIT_HARD="50%")
        assert half.returncode == 0 and 50 < int(half.stdout) < 109, half
        assert neighbour_lives(library, folder)
        assert not neighbour_lives(library, folder, HAKMEM_CONTAINER="0")
        for each in options.libraries:
            near_is_told(each, options.pressure, folder)
    finally:
        folder.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())

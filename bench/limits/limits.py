#!/usr/bin/env python3
"""Runs programs in a memory control group under falling limits, to find the smallest limit that each survives with each allocator.

  limits.py --build build                             prints the table, in Markdown, each row when it is done
  limits.py ... --programs heaps-1,redis --allocators system,hakmem
  limits.py ... --times                               processor time at limits that are shares of the first allocator's peak, relative
                                                      to its time without a limit: medians of three interleaved runs, and how many lived
  limits.py ... --again python hakmem 90M 6           six runs at a limit: how often the program lives, since that may depend on timing
  limits.py ... --run redis hakmem 90M                one run, with hakmem's statistics, to find out why
  limits.py ... --check                               one program at two limits: it must live at one, and be killed at the other

The allocators are the system's, hakmem, hakmem with HAKMEM_CONTAINER=0 (it ignores limits), and those installed of Debian's
libjemalloc2, libtcmalloc-minimal4 and libmimalloc2.0 and of build/peers.  Needs root's right to make groups.  Exit status 77 without a
memory controller, of version 1 or 2.

Each run has its own group.  The group's use includes the program's heap, stacks and page tables, and the pages of files that it was
the first to read; so the first run of each program does not count.  Swap is not limited: there should be none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
STEP = 1.04  # the precision of the smallest limit
SHARES = (2.0, 1.5, 1.1, 0.8)  # the limits for --times, as shares of the peak of the first allocator (the system's if it is chosen)
RUNS = 3
PATIENCE = 10  # a run counts as stalled after so many times the unlimited run's duration, plus SLACK seconds
SLACK = 20
SKIPPED = 77
DEBIAN = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4", "mimalloc": "libmimalloc.so.2"}
ENTER = 'echo $$ > "$1/cgroup.procs" || exit 70; shift; exec "$@"'
PYTHON = "/usr/bin/python3"  # with Debian's numpy


@dataclass
class Program:
    about: str
    command: list[str]
    client: list[str] = field(default_factory=list)  # runs outside the group; the command is then a server at {port}
    environment: dict[str, str] = field(default_factory=dict)


PROGRAMS = {
    "heaps-1": Program("blocks of changing sizes, a twentieth of each stays; 1 thread", ["{heaps}", "changing", "64", "1"]),
    "heaps-4": Program("the same, 4 threads", ["{heaps}", "changing", "64", "4"]),
    "replaced-4": Program("the same, and what stays goes a phase later", ["{heaps}", "replaced", "64", "4"]),
    "in-turn-8": Program("8 threads, one after another, each leaves a hundredth", ["{heaps}", "in-turn", "64", "8"]),
    "redis": Program(
        "keys of changing sizes, a twentieth of each stays",
        ["redis-server", "--port", "{port}", "--save", "", "--enable-debug-command", "yes", "--logfile", "/dev/null"],
        [sys.executable, str(HERE / "keys.py"), "{port}", "24"],
    ),
    "python": Program("dicts, lists, bytes, 1 of 200 stays", [PYTHON, str(HERE / "churn.py"), "40"]),
    "python-malloc": Program("the same, PYTHONMALLOC=malloc", [PYTHON, str(HERE / "churn.py"), "40"], [], {"PYTHONMALLOC": "malloc"}),
    "numpy": Program("temporaries", [PYTHON, str(HERE / "arrays.py"), "80"]),
    "sqlite": Program("tables in memory, sorts", ["sqlite3", "-batch", ":memory:", ".read " + str(HERE / "tables.sql")]),
}


@dataclass
class Run:
    outcome: str  # lived, killed, refused (ended by itself, with an error), stalled
    seconds: float
    processor: float  # processor seconds, user and kernel, of a run that has ended by itself
    peak: int  # of the group, in bytes
    errors: str


class Group:
    """A control group for one run.  Its limit is None or in bytes."""

    V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")

    def __init__(self, limit: int | None) -> None:
        for root, self.most, self.peak_file, self.kills in (
            (self.V1, "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"),
            (self.V2, "memory.max", "memory.peak", "memory.events"),
        ):
            self.folder = root / f"hakmem-limits-{os.getpid()}"
            with contextlib.suppress(OSError):
                self.folder.mkdir()
                if (self.folder / self.most).exists():
                    break
                self.folder.rmdir()
        else:
            raise OSError("no memory controller here that lets a group be made")
        if limit is not None:
            (self.folder / self.most).write_text(str(limit))

    @property
    def peak(self) -> int:
        return int((self.folder / self.peak_file).read_text())

    @property
    def killed(self) -> bool:
        lines = (self.folder / self.kills).read_text().splitlines()
        return any(name == "oom_kill" and int(count) > 0 for name, count in map(str.split, lines))

    def end(self) -> None:
        for _ in range(200):
            for process in (self.folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    os.kill(int(process), signal.SIGKILL)
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.02)
        raise OSError(f"{self.folder} stays")


def allocators(build: Path) -> dict[str, dict[str, str]]:
    """The allocators by name, each with its environment variables."""
    hakmem = str((build / "libhakmem.so").resolve())
    found = {
        "system": {"LD_PRELOAD": "libc.so.6"},  # before any allocator that the program is linked to
        "hakmem": {"LD_PRELOAD": hakmem},
        "hakmem-unaware": {"LD_PRELOAD": hakmem, "HAKMEM_CONTAINER": "0"},
    }
    for name, library in DEBIAN.items():
        for path in sorted(Path("/usr/lib").glob(f"*-linux-gnu/{library}")):
            found[name] = {"LD_PRELOAD": str(path)}
    manifest = build / "peers" / "manifest.json"
    for peer in json.loads(manifest.read_text()) if manifest.exists() else []:
        found[f"{peer['title']} {peer['version']}"] = {**peer.get("env", {}), "LD_PRELOAD": peer["library"]}
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def processor_seconds() -> float:
    """The processor time of all children that have been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def serve(server: subprocess.Popen[str], client: list[str], port: int, patience: float) -> bool:
    """Runs the client.  Returns whether it ended well and in time."""
    until = time.monotonic() + 30
    while server.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        time.sleep(0.02)
    done = subprocess.run(client, timeout=patience, capture_output=True, text=True, check=False)
    if server.poll() is None:
        time.sleep(0.1 if done.returncode else 0)  # the server may be about to die
        server.terminate()
    return done.returncode == 0


def run(program: Program, environment: dict[str, str], limit: int | None, heaps: Path, patience: float = 300) -> Run:
    port = free_port() if program.client else 0
    names = {"{heaps}": str(heaps), "{port}": str(port)}
    fill = [[names.get(word, word) for word in words] for words in (program.command, program.client)]
    settings = [f"{name}={value}" for name, value in {**program.environment, **environment}.items()]
    group = Group(limit)
    begin, outcome, before = time.monotonic(), "", 0.0
    try:
        command = ["sh", "-c", ENTER, "sh", str(group.folder), "env", *settings, *fill[0]]
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, text=True) as process:
                try:
                    served = not fill[1] or serve(process, fill[1], port, patience)
                    before = processor_seconds()  # includes the client's
                    good = process.wait(patience) in ((0, -signal.SIGTERM) if fill[1] else (0,)) and served
                    outcome = "lived" if good else "refused"
                except subprocess.TimeoutExpired:
                    process.kill()
                    outcome = "stalled"
                finally:
                    process.kill()
            errors.seek(0)
            seconds, processor = time.monotonic() - begin, processor_seconds() - before
            return Run("killed" if group.killed else outcome, seconds, processor, group.peak, errors.read())
    finally:
        group.end()


def in_mib(size: float) -> str:
    return f"{size / MIB:.0f}"


@dataclass
class Row:
    """The results of a program with an allocator."""

    program: Program
    environment: dict[str, str]
    heaps: Path
    peak: int = 0
    seconds: float = 0
    worst: str = "killed"  # how it ended below the smallest limit

    def at(self, limit: float) -> Run:
        return run(self.program, self.environment, int(limit), self.heaps, PATIENCE * self.seconds + SLACK)

    def unlimited(self) -> bool:
        done = [run(self.program, self.environment, None, self.heaps) for _ in range(2)]
        self.peak, self.seconds = done[1].peak, max(each.seconds for each in done)
        return all(each.outcome == "lived" for each in done)

    def smallest(self) -> float:
        """The smallest limit that the program survives twice, when a limit 4 % lower has failed once."""
        lives, dies = self.peak * STEP, 0.0
        while self.at(lives).outcome != "lived":
            lives, dies = lives * STEP, lives
        while dies == 0 or lives / dies > STEP * 1.005:
            middle = (lives * dies) ** 0.5 if dies else lives / 1.4
            outcomes = [self.at(middle).outcome]
            if outcomes == ["lived"]:
                outcomes.append(self.at(middle).outcome)
            failed = [each for each in outcomes if each != "lived"]
            if failed:
                dies, self.worst = middle, failed[0]
            else:
                lives = middle
        return lives


def table(programs: list[str], chosen: dict[str, dict[str, str]], heaps: Path) -> None:
    columns = ["program", "allocator", "peak without limit, MiB", "smallest limit, MiB", "below it"]
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for name in programs:
        for allocator, environment in chosen.items():
            row = Row(PROGRAMS[name], environment, heaps)
            if not row.unlimited():
                print(f"| {name} | {allocator} | fails without a limit |", flush=True)
                continue
            least = row.smallest()
            print(f"| {name} | {allocator} | {in_mib(row.peak)} | {in_mib(least)} | {row.worst} |", flush=True)


def processor_times(done: list[Run]) -> list[float]:
    """The processor times of the runs that lived."""
    return [each.processor for each in done if each.outcome == "lived"]


def cell(done: list[Run], unit: float) -> str:
    """The median processor time of the runs that lived, and how many did if not all."""
    times = processor_times(done)
    if not times:
        return statistics.mode(each.outcome for each in done)
    return f"{statistics.median(times) / unit:.2f}" + (f" ({len(times)} of {len(done)})" if len(times) < len(done) else "")


def times_at_limits(programs: list[str], chosen: dict[str, dict[str, str]], heaps: Path) -> None:
    print("| program | allocator | no limit | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |")
    print("|---" * (3 + len(SHARES)) + "|")
    for name in programs:
        first = next(iter(chosen.values()))
        warm = {allocator: run(PROGRAMS[name], environment, None, heaps) for allocator, environment in chosen.items()}
        peak = run(PROGRAMS[name], first, None, heaps).peak
        done: dict[str, list[list[Run]]] = {allocator: [] for allocator in chosen}
        for share in (None, *SHARES):
            turns: dict[str, list[Run]] = {allocator: [] for allocator in chosen}
            for _ in range(RUNS):
                for allocator, environment in chosen.items():
                    limit = None if share is None else int(share * peak)
                    patience = PATIENCE * warm[allocator].seconds + SLACK
                    turns[allocator].append(run(PROGRAMS[name], environment, limit, heaps, patience))
            for allocator, runs in turns.items():
                done[allocator].append(runs)
        times = processor_times(next(iter(done.values()))[0])
        if not times:
            print(f"| {name} | {next(iter(chosen))} | fails without a limit |", flush=True)
            continue
        unit = statistics.median(times)
        for allocator, columns in done.items():
            print(f"| {name} | {allocator} | {' | '.join(cell(each, unit) for each in columns)} |", flush=True)


def check(chosen: dict[str, dict[str, str]], heaps: Path) -> int:
    """Checks that limits take effect: a program that fits lives, one that cannot fit is killed, and the outcome is reported right."""
    program = Program("", ["{heaps}", "replaced", "24", "2"])
    wrong = 0
    for allocator in ("system", "hakmem"):
        for limit, expected in ((512 * MIB, "lived"), (16 * MIB, "killed")):
            done = run(program, chosen[allocator], limit, heaps)
            good = done.outcome == expected and done.peak <= limit and (expected == "killed" or done.peak > 24 * MIB)
            word = "ok" if good else "FAIL"
            print(f"{word} {allocator} at {in_mib(limit)} MiB: {done.outcome}, peak {in_mib(done.peak)} MiB; {done.errors}")
            wrong += not good
    return 1 if wrong else 0


def bytes_of(text: str) -> int | None:
    return None if text == "none" else int(text.rstrip("M")) * (MIB if text.endswith("M") else 1)


def ended(_number: int, _frame: object) -> None:
    sys.exit(143)  # an exception, so that the group is removed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"), help="the build directory, with libhakmem.so and perhaps peers")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="names, with commas: " + ", ".join(PROGRAMS))
    parser.add_argument("--allocators", default="", help="names, with commas; otherwise all")
    parser.add_argument("--run", nargs=3, metavar=("PROGRAM", "ALLOCATOR", "LIMIT"), help="LIMIT: bytes, or MiB with M, or none")
    parser.add_argument("--again", nargs=4, metavar=("PROGRAM", "ALLOCATOR", "LIMIT", "RUNS"))
    parser.add_argument("--times", action="store_true", help="the times alone, and not the smallest limits")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a limit is not kept")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, ended)
    try:
        Group(None).end()
    except OSError as error:
        print(f"skipped: {error}")
        return SKIPPED
    known = allocators(given.build)
    unknown = [name for name in given.allocators.split(",") if name and name not in known]
    if unknown:
        parser.error(f"no allocator {', '.join(unknown)}; there are {', '.join(known)}")
    names = [name for name in known if not given.allocators or name in given.allocators.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        heaps = Path(folder) / "heaps"
        compiler = os.environ.get("CC", "cc")
        options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-pthread", "-fno-builtin-malloc", "-fno-builtin-free"]
        subprocess.run([compiler, *options, str(HERE / "heaps.c"), "-o", str(heaps)], check=True)
        if given.check:
            return check(known, heaps)
        if given.again:
            name, allocator, limit, runs = given.again
            outcomes = [run(PROGRAMS[name], known[allocator], bytes_of(limit), heaps).outcome for _ in range(int(runs))]
            print(", ".join(f"{outcome}: {outcomes.count(outcome)}" for outcome in sorted(set(outcomes))))
            return 0
        if given.run:
            name, allocator, limit = given.run
            done = run(PROGRAMS[name], {**known[allocator], "HAKMEM_STATS": "1"}, bytes_of(limit), heaps)
            times = f"{done.seconds:.2f} s, {done.processor:.2f} s of a processor"
            print(f"{done.outcome} after {times}, peak {in_mib(done.peak)} MiB\n{done.errors}")
            return 0
        asked = given.programs.split(",")
        chosen = [name for name in asked if PROGRAMS[name].command[0] == "{heaps}" or shutil.which(PROGRAMS[name].command[0])]
        for name in set(asked) - set(chosen):
            print(f"left out, {PROGRAMS[name].command[0]} is not here: {name}")
        (times_at_limits if given.times else table)(chosen, {name: known[name] for name in names}, heaps)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The probes otel_memory:alloc and otel_memory:free: what tools find in a file, and what a tracer gets.

  usdt.py notes FILE MACHINE      readelf finds both probes in the file, also after stripping, with their arguments and with
                                  writable semaphores
  usdt.py none FILE               the file has no probes
  usdt.py sums FILE TRACER [LIB]  the weights that a tracer gets sum to the bytes allocated, and to the live bytes; FILE has the
                                  probes, and LIB is preloaded
  usdt.py kernel LIB              the kernel's own tracer finds probes and semaphores; exit status 77 if it may not be used
"""
import collections
import contextlib
import ctypes
import errno
import os
import pathlib
import platform
import re
import struct
import subprocess
import sys
import tempfile

NOTE = re.compile(r"Provider: (\S+)\s+Name: (\S+)\s+Location: (\w+), Base: (\w+), Semaphore: (\w+)\s+Arguments: ([^\n]*)")
SECTION = re.compile(r"^\s*\[ *\d+\] (\S+)\s+(\S+)\s+(\w{16}) (\w+) (\w+) \w+\s+(\w*) ", re.M)
ARGUMENTS = {
    "x86_64": {"alloc": "8@%rdi 8@%rsi 8@%rdx", "free": "8@%rdi"},
    "aarch64": {"alloc": "8@x0 8@x1 8@x2", "free": "8@x0"},
}
NOP = {"x86_64": b"\x90", "aarch64": b"\x1f\x20\x03\xd5"}
ERRORS = 4.5  # standard errors: one run in 100,000 deviates by more
Probe = collections.namedtuple("Probe", "provider name location base semaphore arguments")


def readelf(*words):
    return subprocess.run(["readelf", "-W", *words], check=True, capture_output=True, text=True).stdout


def probes_of(file):
    found = NOTE.findall(readelf("-n", file))
    return [Probe(*words[:2], *(int(word, 16) for word in words[2:5]), words[5].strip()) for words in found]


def parts_of(file):
    """(type, flags, address, offset, bytes in the file) of each program header."""
    rows = re.findall(r"^ +([A-Z_]+) +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+) 0x(\w+) ([RWE ]{3}) ", readelf("-l", file), re.M)
    return [(kind, flags, int(address, 16), int(offset, 16), int(size, 16), int(memory, 16))
            for kind, offset, address, size, memory, flags in rows]


def check_notes(file, machine):
    probes = probes_of(file)
    if sorted((probe.provider, probe.name) for probe in probes) != [("otel_memory", "alloc"), ("otel_memory", "free")]:
        yield f"the probes are {[probe[:2] for probe in probes]}"
        return
    sections = {row[0]: int(row[2], 16) for row in SECTION.findall(readelf("-S", file))}
    parts = parts_of(file)
    content = pathlib.Path(file).read_bytes()
    if len({probe.semaphore for probe in probes}) != 2:
        yield "one semaphore serves both"
    for probe in probes:
        if probe.arguments != ARGUMENTS[machine][probe.name]:
            yield f"{probe.name}: arguments are {probe.arguments}"
        if probe.base != sections[".stapsdt.base"]:
            yield f"{probe.name}: the base is not where .stapsdt.base is"
        code = [probe.location - part[2] + part[3] for part in parts
                if part[0] == "LOAD" and "E" in part[1] and part[2] <= probe.location < part[2] + part[4]]
        nop = NOP[machine]
        if not code or content[code[0]:code[0] + len(nop)] != nop:
            yield f"{probe.name}: no nop is there"
        # The kernel finds a semaphore by its offset in the file, in a mapping that is writable while the program runs.
        held = [part for part in parts if part[2] <= probe.semaphore < part[2] + part[4]]
        if not any(part[0] == "LOAD" and "W" in part[1] for part in held) or any(part[0] == "GNU_RELRO" for part in held):
            yield f"{probe.name}: the semaphore is not in the file's writable part"


def check_stripped(file, machine):
    yield from check_notes(file, machine)
    if platform.machine() != machine:
        return  # strip may not know files of that machine
    with tempfile.TemporaryDirectory() as folder:
        bare = os.path.join(folder, "bare")
        subprocess.run(["strip", "-o", bare, file], check=True)
        yield from (f"stripped: {line}" for line in check_notes(bare, machine))


def traced(file, tracer, library):
    """Yields the tracer's lines by phase: (phase, allocated, live, [[address, size, weight] or [address]])."""
    by_name = {probe.name: probe for probe in probes_of(file)}
    places = [f"{place:#x}" for which in ("location", "semaphore")
              for place in (getattr(by_name[name], which) for name in ("alloc", "free"))]
    own = os.path.samefile(file, tracer)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
    done = subprocess.run([tracer, "" if own else os.path.basename(os.path.realpath(file)).split(".so")[0], *places], capture_output=True,
                          text=True, timeout=600, env=plain | ({"LD_PRELOAD": library} if library else {}))
    if done.returncode != 0:
        sys.exit(f"the tracer ended with {done.returncode}: {done.stderr}")
    events = []
    for line in done.stdout.splitlines():
        word, *rest = line.split()
        if word == "done":
            yield rest[0], int(rest[1]), int(rest[2]), events
            events = []
        else:
            events.append([int(number, 0) for number in rest])


def is_off(true, told, weights):
    """Whether the sum of what was reported is further from the truth than chance explains; `weights` has the weights by block.

    A block that is used again is sampled each time or never; a block that is always sampled adds no error and is not in `weights`.
    """
    error = sum(weight * weight for weight in weights.values()) ** 0.5
    if told < true:  # then the error is underestimated as well
        error *= (true / max(told, 1)) ** 0.5
    print(f"  {true} bytes, told of {told} +- {error:.0f}")
    return abs(told - true) > ERRORS * error


def check_sums(file, tracer, library=None):
    live, times = {}, {}
    for phase, allocated, held, events in traced(file, tracer, library):
        told, by_place = 0, collections.Counter()
        for address, *rest in events:
            if not rest:
                if live.pop(address, None) is None:
                    yield f"{phase}: {address:#x} is freed, and was not allocated"
                continue
            size, weight = rest
            if address in live:
                yield f"{phase}: {address:#x} is allocated twice"
            if weight < size:
                yield f"{phase}: {size} bytes stand for {weight}"
            live[address] = rest
            told += weight
            if weight > size:
                by_place[address] += weight
        times[phase] = len(events)
        print(f"{phase}: {len(events)} times; allocated and live:")
        if is_off(allocated, told, by_place):
            yield f"{phase}: {allocated} bytes were allocated, and {told} told of"
        told = sum(weight for _, weight in live.values())
        if is_off(held, told, {address: weight for address, (size, weight) in live.items() if weight > size}):
            yield f"{phase}: {held} bytes are live, and {told} told of"
    enough = {"kept": 400, "large": 500, "certain": 100, "resized": 200, "freed": 900, "ring": 20, "reused": 100, "churn": 1000}
    if any(times.get(phase, 0) < least for phase, least in enough.items()):
        yield f"too few were told of: {times}"


# ---- The kernel's tracer ----

UPROBES = pathlib.Path("/sys/bus/event_source/devices/uprobe/type")
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
ATTRIBUTES = struct.Struct("<IIQ40xQQ48x")  # of perf_event_open: type, size, config, and the path and the offset of a probe
BLOCKS = 100
TRACED = f"""
print("ready", flush=True), input()
kept = [bytearray(200_000) for _ in range({BLOCKS})]
print("allocated", flush=True), input()
del kept
print("freed", flush=True), input()
"""


def offset_in(file, address):
    return next(address - part[2] + part[3] for part in parts_of(file) if part[0] == "LOAD" and part[2] <= address < part[2] + part[4])


@contextlib.contextmanager
def counting(library, probe, process):
    """Yields a descriptor that counts how often the process reaches the probe, to which the kernel listens meanwhile."""
    path = ctypes.create_string_buffer(os.path.realpath(library).encode())
    semaphore, place = offset_in(library, probe.semaphore), offset_in(library, probe.location)
    words = int(UPROBES.read_text()), ATTRIBUTES.size, semaphore << 32, ctypes.addressof(path), place
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(PERF_EVENT_OPEN[platform.machine()], ATTRIBUTES.pack(*words), process, -1, -1, 0)
    if file < 0:
        problem = ctypes.get_errno()
        print(f"usdt: the kernel's tracer: {os.strerror(problem)}", file=sys.stderr)
        sys.exit(77 if problem in (errno.EACCES, errno.EPERM, errno.ENOSYS) else 1)
    try:
        yield file
    finally:
        os.close(file)


def listeners(library, probe, process):
    """The value of the probe's semaphore in the process."""
    maps = pathlib.Path(f"/proc/{process}/maps").read_text()
    base = int(re.search(rf"^(\w+)-\S+ \S+ 0+ .*{re.escape(os.path.realpath(library))}$", maps, re.M)[1], 16)
    with open(f"/proc/{process}/mem", "rb") as memory:
        memory.seek(base + probe.semaphore)
        return int.from_bytes(memory.read(2), sys.byteorder)


def check_kernel(library):
    if not UPROBES.exists():
        sys.exit(77)
    alloc, free = sorted(probes_of(library), key=lambda probe: probe.name)
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-c", TRACED]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")} | {"LD_PRELOAD": library}
        traced = stack.enter_context(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(traced.kill)

        def go_on(to):
            if to != "ready":
                traced.stdin.write("\n")
                traced.stdin.flush()
            if traced.stdout.readline() != f"{to}\n":
                sys.exit(f"usdt: the traced process did not come to {to}")

        go_on("ready")
        with counting(library, alloc, traced.pid) as allocated, counting(library, free, traced.pid) as freed:
            if 0 in (listeners(library, alloc, traced.pid), listeners(library, free, traced.pid)):
                yield "a semaphore is 0 while the kernel listens"
            for phase, times in (("allocated", (BLOCKS, 0)), ("freed", (BLOCKS, BLOCKS))):
                go_on(phase)
                counts = [struct.unpack("=Q", os.read(file, 8))[0] for file in (allocated, freed)]
                if any(not least <= count < least + BLOCKS // 2 for least, count in zip(times, counts)):
                    yield f"{phase}: alloc and free were met {counts} times, not {times}"
        if (listeners(library, alloc, traced.pid), listeners(library, free, traced.pid)) != (0, 0):
            yield "a semaphore is not 0 when nobody listens any more"


def main():
    what, file, *rest = sys.argv[1:]
    if what == "none":
        wrong = [f"{probe.name}: a probe" for probe in probes_of(file)]
    else:
        wrong = list({"notes": check_stripped, "sums": check_sums, "kernel": check_kernel}[what](file, *rest))
    for line in wrong[:20]:
        print(f"usdt: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

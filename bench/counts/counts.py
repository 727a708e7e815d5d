#!/usr/bin/env python3
"""Counts instructions and first-level data cache misses for each allocation operation, under every allocator.

Each workload runs twice under valgrind, with N and with 2 N steps; the difference, divided by the operations of N steps, is the cost
of one operation, without start-up.  The tool is callgrind, which has cachegrind's cache model and knows the shared object of each
instruction.  So each figure is given twice: in all, and in the allocator, which is everything outside the program, libc and the
loader (for the system's allocator, libc without memcpy and similar functions).

What could differ from run to run is fixed.  valgrind itself chooses the addresses; the environment has only what is named here;
paths and arguments have a fixed length, since the loader keeps them, which moves what follows; and libc's string functions are the
baseline's.  The pinned figures are those of `hakmem-fixed`, which has no time-based decay, as clocks run fast under valgrind, and
samples no blocks, as the clock limits how many.  `hakmem` has its default settings.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "counts.json"
sys.path.insert(0, str(ROOT / "tests" / "golden"))
import fastpath  # noqa: E402  the name of a library's compiler, and pinning by it

CACHES = ["--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64"]
BASELINE = "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM"
FOLDER = "/tmp"
TOLERANCE = 0.02
MISS_FLOOR = 0.01  # changes by fewer misses for each operation mean nothing
FIGURES = ("instructions", "misses", "all_instructions", "all_misses")
PINNED = ("instructions", "misses", "all_misses")  # all_instructions also has the program's own instructions
SKIPPED = 77
FIXED = {"HAKMEM_DECAY_MS": "-1", "HAKMEM_INSIGHT": "0"}

# name: program, arguments with {steps}, N, operations in a step (a malloc and a free are two)
WORKLOADS = {
    "mixed-256": ("random_mixed", "{steps} 256", 50_000, 2),
    "mixed-8192": ("random_mixed", "{steps} 8192", 100_000, 2),
    "mixed-100k": ("random_mixed", "{steps} 100000", 400_000, 2),
    "larson": ("random_mixed", "{steps} 5000 1 8 1000", 100_000, 2),
    "pool": ("random_mixed", "{steps} 256 1 8192 32768", 20_000, 2),
    "pair-64": ("patterns", "pair {steps}", 50_000, 2),
    "calloc-4k": ("patterns", "zeroed {steps}", 10_000, 2),
    "realloc": ("patterns", "growth {steps}", 40, 18),
}
SOURCES = {"random_mixed": "bench/workloads/random_mixed.c", "patterns": "bench/counts/patterns.c"}

NAMED = re.compile(r"^(c?)(ob|fn)=\((\d+)\)(?: (.*))?$")
COST = re.compile(r"^[\d+*-]")
RUNTIME = re.compile(r"/(libc\.so\.6|ld-[^/]*\.so[^/]*|vgpreload_[^/]*)$")
LIBC = re.compile(r"/libc\.so\.6$")
MEMORY_FUNCTION = re.compile(r"^_*mem(set|cpy|move|cmp)|^bcmp")


def profile(text):
    """Yields (object, function, instructions, misses) for each cost line of a callgrind profile, calls not included."""
    events, names, here, inclusive = None, {"ob": {}, "fn": {}}, {"ob": "", "fn": ""}, False
    for line in text.splitlines():
        if match := NAMED.match(line):
            callee, kind, number, name = match.groups()
            known = names[kind]
            known[number] = name if name is not None else known.get(number, "")
            if not callee:
                here[kind] = known[number]
        elif line.startswith("calls="):
            inclusive = True  # the next line has the call's inclusive cost
        elif line.startswith("events:"):
            events = line.split()[1:]
        elif COST.match(line):
            if not inclusive:
                cost = dict(zip(events, map(int, line.split()[1:])))
                yield here["ob"], here["fn"], cost.get("Ir", 0), cost.get("D1mr", 0) + cost.get("D1mw", 0)
            inclusive = False


def allocates(binary, function, program, system):
    """Whether a function belongs to the allocator."""
    if system:
        return bool(LIBC.search(binary)) and not MEMORY_FUNCTION.match(function)
    return bool(binary) and binary != program and not RUNTIME.search(binary)


def totals(text, program, system):
    sums = dict.fromkeys(FIGURES, 0)
    for binary, function, instructions, misses in profile(text):
        sums["all_instructions"] += instructions
        sums["all_misses"] += misses
        if allocates(binary, function, program, system):
            sums["instructions"] += instructions
            sums["misses"] += misses
    return sums


def environment_of(allocator):
    own = dict(allocator.get("env", {}))
    own["GLIBC_TUNABLES"] = ":".join(filter(None, [BASELINE, own.get("GLIBC_TUNABLES")]))
    if allocator.get("library"):
        own["LD_PRELOAD"] = "./preload.so"
    return own


def run(allocator, workload, steps, folder):
    """The sums of one run under valgrind."""
    name, arguments, _, _ = WORKLOADS[workload]
    out = os.path.join(folder, "profile")
    command = [shutil.which("valgrind"), "-q", "--tool=callgrind", "--cache-sim=yes", *CACHES,
               "--callgrind-out-file=profile", "./" + name, *(word.format(steps=f"{steps:09}") for word in arguments.split())]
    done = subprocess.run(command, cwd=folder, env=environment_of(allocator), capture_output=True, text=True, timeout=600)
    if done.returncode != 0 or not os.path.exists(out):
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip().rpartition(chr(10))[2]}")
    text = pathlib.Path(out).read_text()
    os.unlink(out)
    return totals(text, os.path.join(folder, name), "library" not in allocator)


def measure(allocator, workload, folder):
    """The figures for one operation."""
    _, _, steps, operations = WORKLOADS[workload]
    once, twice = (run(allocator, workload, factor * steps, folder) for factor in (1, 2))
    return {figure: round((twice[figure] - once[figure]) / (steps * operations), 4) for figure in FIGURES}


def measure_all(allocators, folder):
    results = {}
    for allocator in allocators:
        name = allocator["name"]
        if "library" in allocator:
            link = os.path.join(folder, "preload.so")
            pathlib.Path(link).unlink(missing_ok=True)
            os.symlink(allocator["library"], link)
        try:
            results[name] = {workload: measure(allocator, workload, folder) for workload in WORKLOADS}
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"counts: {name} does not run under valgrind: {error}", file=sys.stderr)
            if name.startswith("hakmem"):
                raise SystemExit(1) from None
    return results


def compile_programs(folder):
    for name, source in SOURCES.items():
        command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-fno-builtin", "-o", os.path.join(folder, name), ROOT / source, "-pthread"]
        subprocess.run(command, check=True)


def allocators_of(build, alone):
    hakmem = {"name": "hakmem", "library": str((build / "libhakmem.so").resolve())}
    fixed = hakmem | {"name": "hakmem-fixed", "env": FIXED}
    manifest = build / "peers" / "manifest.json"
    if alone:
        return [fixed]
    if not manifest.exists():
        print("counts: no peers; `make peers` brings them", file=sys.stderr)
    return [{"name": "system"}, hakmem, fixed, *(json.loads(manifest.read_text()) if manifest.exists() else [])]


def show(results, instructions, misses, title):
    """Prints a Markdown table of instructions and misses, with a row for each allocator."""
    print(f"\n{title}: instructions, first-level data misses, for each operation\n")
    print("| allocator | " + " | ".join(WORKLOADS) + " |\n|---|" + "---|" * len(WORKLOADS))
    for name, row in results.items():
        cells = (f"{counts[instructions]:.1f}, {counts[misses]:.3f}" for counts in row.values())
        print(f"| {name} | " + " | ".join(cells) + " |")


def differences(measured, pinned):
    """A line for each figure that differs from its pin by more than the tolerance."""
    for workload, counts in measured.items():
        for figure in PINNED:
            old, new = pinned.get(workload, {}).get(figure, 0), counts[figure]
            floor = 0 if figure == "instructions" else MISS_FLOOR
            if abs(new - old) > max(TOLERANCE * old, floor):
                yield f"{workload}: {new:.3f} {figure} for each operation, pinned {old:.3f}"


def pins():
    return json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}


def update(key, measured):
    golden = pins() | {key: {workload: {figure: counts[figure] for figure in PINNED} for workload, counts in measured.items()}}
    parts = []
    for compiler, workloads in sorted(golden.items()):
        lines = ",\n".join(f'    "{workload}": {json.dumps(counts)}' for workload, counts in workloads.items())
        parts.append(f'  "{compiler}": {{\n{lines}\n  }}')
    GOLDEN.write_text("{\n" + ",\n".join(parts) + "\n}\n")  # one workload a line, so that a diff shows what changed


def check(key, measured):
    if key not in pins():
        print(f"counts: nothing is pinned for {key}; pin it with --update")
        return SKIPPED
    found = list(differences(measured, pins()[key]))
    for line in found:
        print("FAIL " + line)
    if found:
        print("counts: if that is meant, say why in the commit and pin it: make bench-counts ARGS=--update")
    return int(bool(found))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path, help="the build directory, with libhakmem.so")
    parser.add_argument("--check", action="store_true", help="hakmem alone, against what is pinned in tests/golden/counts.json")
    parser.add_argument("--update", action="store_true", help="hakmem alone; pin what is measured")
    return parser.parse_args()


def main():
    options = arguments()
    alone = options.check or options.update
    for tool in ("valgrind", "cc"):
        if shutil.which(tool) is None:
            sys.exit(f"counts: {tool} is missing; tools/setup test brings it")
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        compile_programs(folder)
        results = measure_all(allocators_of(options.build, alone), folder)
    show(results, "instructions", "misses", "In the allocator")
    show(results, "all_instructions", "all_misses", "In all")
    key = fastpath.compiler_of(options.build / "libhakmem.so")
    if options.update:
        update(key, results["hakmem-fixed"])
    if alone:
        return check(key, results["hakmem-fixed"])
    (options.build / "counts.json").write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

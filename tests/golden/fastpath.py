#!/usr/bin/env python3
"""Pins the cost of the fast paths: the instructions of a malloc that hits, of a local free, and of two C++ operators that depend on
whether a program has replaced others: operator new[] and sized operator delete.

stepper.c single-steps the calls in the built library; objdump disassembles the instructions.  Three requirements:
  - no count is above the one pinned in fastpath.json for this compiler (for a new compiler, run once with --update);
  - no path has more instructions than BUDGET;
  - no path has an atomic read-modify-write.
The library under test is the default build; the variant without checks is built here from src/hakmem.c, by the command that
the build directory records for it.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDEN = HERE / "fastpath.json"
SIZES = [64, 500, 1000, 2000, 16000, 32000]
BUDGET = {"default": 24, "unchecked": 16}
# malloc of sizes beyond the table: one more comparison, and a jump each way.
TABLE_MAX = 1024
BUDGET_BEYOND = 3
# new[] checks by one comparison whether the program has its own operators; delete checks the size, and needs no further check.
BUDGET_OPERATOR = {"malloc": 0, "free": 0, "new[]": 2, "delete": 3}
UNCHECKED = ["-UHAK_CHECKS", "-DHAK_CHECKS=0", "-Wno-error"]
COUNTS = ("instructions", "loads", "stores", "branches", "atomics")

MEMORY = re.compile(r"%[c-g]s:|\([^)]*\)")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
PREFIXES = {"rep", "repz", "repnz", "notrack", "bnd", "data16", "cs", "ds", "addr32"}
MOVES = re.compile(r"^(mov|cmov|set|vmov|lea|cvt)")
READERS = re.compile(r"^(cmp(?!xchg)|test|bt[bwlq]?$|ucomis|comis|push|call|jmp|mul|div|idiv|imul)")


def operands_of(text):
    """Splits AT&T operands at the commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)] if text else []


def classify(text):
    """The counts of one instruction as objdump prints it in AT&T syntax."""
    words = text.split("#")[0].split("<")[0].split()
    locked = "lock" in words[:1]
    while words and (words[0] in PREFIXES or words[0] == "lock"):
        words.pop(0)
    name = words[0] if words else "nop"
    operands = operands_of(" ".join(words[1:]))
    touches = [bool(MEMORY.search(operand)) for operand in operands]
    counts = dict.fromkeys(COUNTS, 0)
    counts["instructions"] = 1
    counts["branches"] = int(name[0] == "j" and not name.startswith("jmp"))
    counts["atomics"] = int(locked or (name.startswith("xchg") and any(touches)))
    loads, stores = memory_of(name, touches)
    counts["loads"], counts["stores"] = loads, stores
    return counts


def memory_of(name, touches):
    """(loads, stores) of an instruction; `touches` says which operands are in memory, the destination last."""
    if name.startswith(("lea", "nop", "prefetch", "endbr")):
        return 0, 0
    loads = sum(touches[:-1])
    stores = 0
    if touches and touches[-1]:
        if READERS.match(name):
            loads += 1
        elif MOVES.match(name):
            stores += 1
        else:
            loads, stores = loads + 1, stores + 1
    return loads + int(name.startswith("pop")), stores + int(name.startswith("push"))


def disassemble(library):
    """Instruction text by address."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-w", library], check=True, capture_output=True, text=True).stdout
    rows = (INSTRUCTION.match(line) for line in listing.splitlines())
    return {int(row[1], 16): row[2] for row in rows if row}


def measure(library, stepper, sizes=SIZES, operators=False):
    """{"malloc 64": (counts, texts), ...} for every path."""
    words = ["operators"] if operators else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
    environment["HAKMEM_SAMPLE_KB"] = str(1 << 20)  # otherwise every fourth block of 32,000 bytes would be sampled, and miss
    done = subprocess.run([stepper, library, *words, *map(str, sizes)], capture_output=True, text=True, env=environment, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"stepper failed on {library}: {done.stderr.strip()}")
    code, paths = disassemble(library), {}
    for line in done.stdout.splitlines():
        call, size, *addresses = line.split()
        if not addresses:
            raise RuntimeError(f"{library}: {call} did not run in it")
        texts = [code[int(address, 16)] for address in addresses]
        rows = [classify(text) for text in texts]
        paths[f"{call} {size}"] = ({count: sum(row[count] for row in rows) for count in COUNTS}, texts)
    return paths


def compare(variant, paths, pinned):
    """Yields (failed, line) for one variant; `pinned` is None for a compiler that has no pinned counts."""
    for path, (counts, _) in paths.items():
        where = f"{variant}: {path}"
        call, size = path.split()
        budget = BUDGET[variant] + BUDGET_OPERATOR[call]
        budget += BUDGET_BEYOND if call in ("malloc", "new[]") and int(size) > TABLE_MAX else 0
        if counts["instructions"] > budget:
            yield True, f"{where}: {counts['instructions']} instructions, the budget is {budget}"
        if counts["atomics"]:
            yield True, f"{where}: {counts['atomics']} atomic read-modify-writes, the budget is 0"
        if pinned is None:
            continue
        for count in COUNTS:
            old, new = pinned.get(path, {}).get(count, 0), counts[count]
            if new > old:
                yield True, f"{where}: {new} {count}, pinned {old}"
            elif new < old:
                yield False, f"{where}: {new} {count}, pinned {old}: better; pin it with --update"


def compiler_of(library):
    """The compiler that made the library, as far as the counts depend on it: "gcc-12", "clang-19"."""
    text = subprocess.run(["readelf", "-p", ".comment", library], check=True, capture_output=True, text=True).stdout
    if clang := re.search(r"clang version (\d+)", text):
        return f"clang-{clang[1]}"
    gcc = re.search(r"GCC: \([^)]*\) (\d+)", text)
    return f"gcc-{gcc[1]}" if gcc else "unknown"


def release_command(build):
    """The compiler and flags that the build recorded for src/hakmem.c, and the folder they were used in."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]).name == "hakmem.c":
            words = shlex.split(entry["command"])
            cut = words.index("-o")
            return words[:cut] + [word for word in words[cut + 2:] if word not in ("-c", entry["file"])], entry
    raise RuntimeError(f"{build}/compile_commands.json has no command for src/hakmem.c")


def make_stepper(compiler, folder):
    stepper = os.path.join(folder, "stepper")
    subprocess.run([compiler, "-std=c11", "-O1", "-o", stepper, HERE / "stepper.c"], check=True)
    return stepper


def make_unchecked(build, folder):
    """The release library without checks."""
    library = os.path.join(folder, "libunchecked.so")
    command, entry = release_command(build)
    subprocess.run([*command, *UNCHECKED, "-shared", "-o", library, entry["file"]], check=True, cwd=entry["directory"])
    return library


def show(variant, paths, listing):
    for path, (counts, texts) in paths.items():
        print(f"{variant:10} {path:13} " + "  ".join(f"{counts[count]:3} {count}" for count in COUNTS))
        if listing:
            print("".join(f"{'':24} {text}\n" for text in texts), end="")


def update(key, measured):
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    golden[key] = {variant: {path: counts for path, (counts, _) in paths.items()} for variant, paths in measured.items()}
    rows = []
    for compiler, variants in sorted(golden.items()):
        parts = []
        for variant, paths in variants.items():
            lines = ",\n".join(f'      "{path}": {json.dumps(counts)}' for path, counts in paths.items())
            parts.append(f'    "{variant}": {{\n{lines}\n    }}')
        rows.append(f'  "{compiler}": {{\n' + ",\n".join(parts) + "\n  }")
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")  # one path a line, so that a diff shows what changed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path, help="the build directory, with libhakmem.so")
    parser.add_argument("--show", action="store_true", help="print the instructions of each path")
    parser.add_argument("--update", action="store_true", help="pin the measured counts (budgets are still checked)")
    return parser.parse_args()


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        stepper = make_stepper(release_command(options.build)[0][0], folder)
        libraries = {"default": str(options.build / "libhakmem.so"), "unchecked": make_unchecked(options.build, folder)}
        measured = {variant: measure(library, stepper, operators=True) for variant, library in libraries.items()}
    key = compiler_of(options.build / "libhakmem.so")
    if options.update:
        update(key, measured)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if key not in golden:
        print(f"fastpath: nothing is pinned for {key}; budgets only")
    failed = False
    for variant, paths in measured.items():
        show(variant, paths, options.show)
        for bad, line in compare(variant, paths, golden.get(key, {}).get(variant) if key in golden else None):
            print(("FAIL " if bad else "note ") + line)
            failed |= bad
    if failed:
        print("fastpath: shorten the path (--show prints it), or say in the commit why it grew and pin it: "
              f"{pathlib.Path(__file__).name} --build BUILD --update")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks that the release library shows nothing but its interface to the outside, and where its code lies.

  imports   each undefined symbol is in imports.txt: no printf family, no locale; the C++ library only weakly
  exports   each defined symbol is in exports.txt, and each name there is defined
  needed    no library but libc and the loader
  tls       static TLS of at most 64 bytes, so that dlopen works in any process
  silence   programs print the same with the library as without it, and nothing on standard error
  seldom    code that seldom runs is in a section of its own, of which a small process loads nothing: src/placement.ld
  first     a process that allocates nothing loads only the code of its start and end: src/placement.ld
  small     a small process with one thread loads only this code and that for small processes: src/placement.ld
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NEEDED = re.compile(r"^(libc\.so\.6|libc\.musl-.*\.so\.1|libc\.so|ld-.*\.so\..*)$")
TLS_LIMIT = 64
NOISY = re.compile(r"printf|^puts$|^perror$|^syslog$|^_IO_")

# Each exercises the library differently: a short process, threads, a fork, a failing allocation.
PROGRAMS = {
    "true": ["/bin/true"],
    "shell with children": ["/bin/sh", "-c", "for i in 1 2 3; do echo $i | cat; done"],
    "python with threads": [sys.executable, "-c",
                            "import threading\n"
                            "made = []\n"
                            "work = lambda: made.append(len([b'x' * n for n in range(3000)]))\n"
                            "threads = [threading.Thread(target=work) for _ in range(4)]\n"
                            "[t.start() for t in threads]; [t.join() for t in threads]\n"
                            "print(made)"],
    "python out of memory": [sys.executable, "-c",
                             "try:\n    bytearray(1 << 62)\nexcept MemoryError:\n    print('refused')"],
}


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rows_in(name):
    """The rows of an allow-list, as lists of words; # starts a comment."""
    rows = (line.split("#")[0].split() for line in (HERE / name).read_text().splitlines())
    return [row for row in rows if row]


def symbols(library, which):
    """nm's letter by symbol name."""
    rows = (line.split() for line in tool("nm", "-D", "-P", which, library).splitlines())
    return {row[0].split("@")[0]: row[1] for row in rows}


def check_imports(library):
    allowed = {row[0]: row[1:] for row in rows_in("imports.txt")}
    for name, letter in sorted(symbols(library, "--undefined-only").items()):
        if name not in allowed:
            yield f"imports: {name}: " + ("output is compiled in" if NOISY.search(name) else "not in imports.txt")
        elif allowed[name] == ["weak"] and letter not in "wv":
            yield f"imports: {name}: must be weak"


def check_exports(library):
    found, listed = symbols(library, "--defined-only").keys(), {row[0] for row in rows_in("exports.txt")}
    for name in sorted(found - listed):
        yield f"exports: {name}: not in exports.txt"
    for name in sorted(listed - found):
        yield f"exports: {name}: in exports.txt, but the library does not define it"


def check_needed(library):
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-dW", library)):
        if not NEEDED.match(name):
            yield f"needed: {name}"


def check_tls(library):
    for row in re.findall(r"^\s*TLS\s+(.*)$", tool("readelf", "-lW", library), re.M):
        size = int(row.split()[4], 16)
        if size > TLS_LIMIT:
            yield f"tls: {size} bytes, the limit is {TLS_LIMIT}"


def check_silence(library):
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
    for title, command in PROGRAMS.items():
        want = subprocess.run(command, capture_output=True, env=plain, timeout=60)
        got = subprocess.run(command, capture_output=True, env={**plain, "LD_PRELOAD": os.path.abspath(library)}, timeout=60)
        if (got.returncode, got.stdout, got.stderr) != (want.returncode, want.stdout, want.stderr):
            yield f"silence: {title}: exit {got.returncode}, standard output {got.stdout!r}, standard error {got.stderr!r}"


def section(library, name):
    """The start and length of a section of the library, or None."""
    row = re.search(rf"\s{re.escape(name)}\s+PROGBITS\s+(\w+)\s+\w+\s+(\w+)", tool("readelf", "-SW", library))
    return tuple(int(word, 16) for word in row.groups()) if row else None


def resident(library, *command):
    """(start and end in the library, resident KiB) of each of its mappings in a process that prints /proc/self/smaps."""
    smaps = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60,
                           env={"LD_PRELOAD": os.path.abspath(library)}).stdout
    found = re.findall(r"^(\w+)-(\w+) \S+ \w+ \S+ \d+ +(.*)\n(?:\w+: .*\n)*?Rss: +(\d+) kB", smaps, re.M)
    ours = [(int(start, 16), int(end, 16), int(kib)) for start, end, path, kib in found
            if path == os.path.realpath(library)]
    return [(start - ours[0][0], end - ours[0][0], kib) for start, end, kib in ours]


def check_placed(check, library, command, wanted, unwanted):
    """Checks that part of each section `wanted` is resident, and nothing of the sections `unwanted`, which have their own mapping."""
    parts = {name: section(library, name) for name in (*wanted, *unwanted)}
    for name, part in parts.items():
        if part is None or part[1] < 1024:
            yield f"{check}: {name} is not there, or next to nothing"
            return
    for start, end, kib in resident(library, *command):
        held = [name for name, part in parts.items() if start <= part[0] < end]
        apart = [name for name in held if name in unwanted]
        if apart and held != apart:
            yield f"{check}: {' and '.join(held)} are one mapping"
        elif apart and kib > 0:
            yield f"{check}: {kib} KiB of {' and '.join(apart)} are resident"
        elif held and not apart and kib == 0:
            yield f"{check}: nothing of {' and '.join(held)} is resident, so nothing was seen"


def check_seldom(library):
    yield from check_placed("seldom", library, ["/bin/cat", "/proc/self/smaps"], [".text.small"], [".text.seldom"])


def check_resident(check, library, arguments, wanted, unwanted):
    """The same, with the program resident.c."""
    with tempfile.TemporaryDirectory() as made:
        program = os.path.join(made, "resident")
        subprocess.run(["cc", "-O1", "-fno-builtin", "-o", program, HERE / "resident.c"], check=True)
        yield from check_placed(check, library, [program, *arguments], wanted, unwanted)


def check_first(library):
    yield from check_resident("first", library, [], [".text.first"], [".text.seldom", ".text.small", ".text", ".eh_frame"])


def check_small(library):
    yield from check_resident("small", library, ["allocate"], [".text.first", ".text.small"], [".text.seldom", ".text"])


CHECKS = {"imports": check_imports, "exports": check_exports, "needed": check_needed, "tls": check_tls, "silence": check_silence,
          "seldom": check_seldom, "first": check_first, "small": check_small}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True)
    parser.add_argument("checks", nargs="*", choices=[*CHECKS, []], help="all by default")
    options = parser.parse_args()
    found = [line for name in options.checks or CHECKS for line in CHECKS[name](options.lib)]
    for line in found:
        print(line)
    print(f"release: {len(found)} violations")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

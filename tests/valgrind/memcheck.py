#!/usr/bin/env python3
"""Runs a program that uses hakmem under Valgrind's memcheck, and compares memcheck's reports with the expected ones.

  memcheck.py faults --program FAULTS [--preload LIBRARY [--more]]   each seeded fault is reported, with the right kind and stacks
  memcheck.py clean --program CLEAN [--preload LIBRARY]              nothing is reported, and nothing seems lost
  memcheck.py api --program API --preload LIBRARY                    checks of the API pass without an error

Exit status 0 if everything is as expected.
"""
import argparse
import collections
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import cases

VALGRIND = ["valgrind", "--soname-synonyms=somalloc=nouserintercepts", "--xml=yes", "--xml-file=report.%p.xml", "--leak-check=full"]
LEAKS = "--show-leak-kinds=definite,indirect,possible"

Report = collections.namedtuple("Report", "kind parts blocks bytes")


def plain(text):
    """Memcheck's text without the parts that differ from run to run."""
    text = re.sub(r" \(\S+:\d+\)$", "", text.replace("recently re-allocated ", ""))
    text = re.sub(r"0x[0-9A-Fa-f]+", "", re.sub(r"#\d+", "#N", text))
    return re.sub(r"\s+", " ", text).strip().removesuffix(" at")


def stack_of(element, source):
    """The functions on the stack that are in the program's own source, innermost first."""
    names = [frame.findtext("fn", "") for frame in element.iter("frame") if frame.findtext("file") == source]
    return " < ".join(name for name in names if name != "main")


def report_of(error, source):
    """The report in an <error>: its kind, and each text with the stack that follows it."""
    kind, parts, leak = error.findtext("kind"), [error.findtext("kind")], error.find("xwhat")
    if leak is not None:
        parts[0] += " " + re.sub(r" (are|is) .*", "", plain(leak.findtext("text")))
    for element in error:
        if element.tag == "stack":
            parts[-1] += " at " + stack_of(element, source)
        elif element.tag == "auxwhat":
            parts.append(plain(element.text))
    count = [int(leak.findtext(name, "0")) if leak is not None else 0 for name in ("leakedblocks", "leakedbytes")]
    return Report(kind, " | ".join(parts), *count)


class Run:
    """One process under memcheck, and the processes that it forked."""

    def __init__(self, program, arguments, preload, options=(), flags=()):
        source = program.name.split("_")[0] + ".c"
        self.title = " ".join([program.name, *arguments])
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
        environment |= dict(options)
        if preload:
            environment["LD_PRELOAD"] = str(preload)
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*VALGRIND, *flags, str(program), *arguments], cwd=folder, env=environment, text=True, errors="replace",
                                  capture_output=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
            texts = [file.read_text(errors="replace") for file in sorted(pathlib.Path(folder).glob("report.*.xml"))]
        self.broken = [text for text in texts if not text.rstrip().endswith("</valgrindoutput>")]
        trees = [xml.etree.ElementTree.fromstring(text) for text in texts if text not in self.broken]
        self.processes = len(trees)
        self.reports = [report_of(error, source) for tree in trees for error in tree.iter("error")]
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def ending(self):
        return signal.Signals(-self.code).name if self.code < 0 else str(self.code) if self.code else ""

    def fail(self, text):
        print(f"FAIL {self.title}: {text}")
        print("".join(f"    {line}\n" for line in "".join([*self.broken, self.out, self.err]).splitlines()[-30:]), end="")
        return 1


def compare(run, case):
    """Prints what differs: faults not reported, unexpected reports, another end.  Returns 1 if anything does."""
    found, wanted = (collections.Counter(lines) for lines in ([report.parts for report in run.reports], case.reports.splitlines()))
    wrong = [f"not reported: {line}" for line in (wanted - found).elements()]
    wrong += [f"reported: {line}" for line in (found - wanted).elements()]
    if run.broken:
        wrong.append("Valgrind itself failed")
    if run.ending() != case.signal:
        wrong.append(f"ends with {run.ending() or 'no error'}, not {case.signal or 'without'}")
    if case.said and not re.search("^hakmem: " + re.escape(case.said), run.err, re.M):
        wrong.append(f"does not say: hakmem: {case.said}")
    return run.fail("\n  ".join(["", *wrong])) if wrong else 0


def check_faults(options):
    tried = [cases.ALL, cases.DOUBLE_FREE, *(cases.MORE if options.more else [])]
    failed = 0
    for case in tried:
        flags = ["--track-origins=yes", LEAKS]
        failed += compare(Run(options.program, case.faults.split(), options.preload, case.options, flags), case)
    print(f"{len(tried)} processes with {sum(len(case.faults.split()) for case in tried)} faults, {failed} wrong")
    return failed


def check_clean(options):
    """Memcheck finds reachable exactly what the program holds at its end: it knows all blocks, and none seems lost."""
    failed = 0
    for settings in [(), cases.GUARD] if options.more else [()]:
        run = Run(options.program, [], options.preload, settings, ["--show-leak-kinds=all"])
        own = [report for report in run.reports if report.kind == "Leak_StillReachable" and "link_to" in report.parts]
        others = [report.parts for report in run.reports if report.kind != "Leak_StillReachable"]
        blocks, size = sum(report.blocks for report in own), sum(report.bytes for report in own)
        if run.code or run.processes != 2:
            failed += run.fail(f"ends with {run.ending() or 'no error'}, {run.processes} processes")
        elif others or run.broken:
            failed += run.fail("\n  ".join(["", *others]))
        elif run.out.split() != [str(blocks), str(size)]:
            failed += run.fail(f"memcheck finds {blocks} blocks with {size} bytes")
        else:
            print(f"{run.title} {dict(settings)}: {blocks} blocks held, {size} bytes, nothing else")
    return failed


def check_api(options):
    """Checks of the API, one after another in one process."""
    listed = subprocess.run([options.program, "-l"], capture_output=True, text=True, check=True).stdout.split()
    chosen = [name for name in listed if name.startswith(cases.API) and name not in cases.API_LEFT_OUT]
    stale = [name for name in cases.API_LEFT_OUT if name not in listed]
    run = Run(options.program, ["-t", "0", "-i", *chosen], options.preload, [("TEST_EXPECTS_HAKMEM", "1")])
    run.title = f"{options.program.name} -i"
    if stale:
        return run.fail(f"left out, but there is no such check: {' '.join(stale)}")
    if run.code or f" {len(chosen)} passed, 0 failed, 0 skipped" not in run.out:
        return run.fail(f"ends with {run.ending() or 'no error'}, of {len(chosen)} checks")
    errors = [report.parts for report in run.reports if not report.kind.startswith("Leak_")]  # some checks lose blocks
    if errors or run.broken:
        return run.fail("\n  ".join(["", *errors]))
    print(f"{run.title}: {run.out.strip()}")
    return 0


def resolved(path):
    return pathlib.Path(path).resolve()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["faults", "clean", "api"])
    parser.add_argument("--program", required=True, type=resolved)
    parser.add_argument("--preload", type=resolved, help="a library to preload; without it the program has hakmem by itself")
    parser.add_argument("--more", action="store_true", help="all cases, where otherwise only the first are run")
    options = parser.parse_args()
    return int({"faults": check_faults, "clean": check_clean, "api": check_api}[options.what](options) > 0)


if __name__ == "__main__":
    sys.exit(main())

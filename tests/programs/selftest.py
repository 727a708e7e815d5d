#!/usr/bin/env python3
"""Shows that the runner fails when it must, with libraries and programs that are wrong on purpose."""
import io
import contextlib
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import harness  # noqa: E402
from cases import CASES, Case  # noqa: E402

LIBC_MALLOC = """
#include <stddef.h>
void *__libc_malloc(size_t size);
EXTRA
void *malloc(size_t size) { return __libc_malloc(size BIGGER); }
"""


def alive(pid, patience=5):
    """Whether the process still runs after some seconds; one that has ended and is not yet reaped does not count."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except FileNotFoundError:
            return False
        time.sleep(0.05)
    return True


def load_runner():
    """Loads the program `run` as a module."""
    module = type(sys)("runner")
    module.__file__ = str(HERE / "run")
    exec(compile((HERE / "run").read_text(), module.__file__, "exec"), module.__dict__)
    return module


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.runner = load_runner()

    def library(self, text):
        (self.root / "fake.c").write_text(text)
        library = self.root / "fake.so"
        subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", library, self.root / "fake.c"], check=True)
        return library

    def outcome(self, library, run, needs=None):
        return self.runner.outcome(Case(run, needs or {}), library, False)

    def good(self):
        return self.library(LIBC_MALLOC.replace("EXTRA", "").replace("BIGGER", ""))

    def test_pass(self):
        self.assertIsNone(self.outcome(self.good(), lambda side: side.call("/bin/echo", "same")))

    def test_bound(self):
        def run(side):
            side.require_bound("/bin/ls", "/")
            return "fine"
        self.assertIsNone(self.outcome(self.good(), run))
        self.assertIn("malloc comes from /lib", self.outcome(self.library("int x;\n"), run))

    def test_library_that_the_loader_refuses(self):
        library = self.root / "text.so"
        library.write_text("no library")
        self.assertIn("ERROR: ld.so", self.outcome(library, lambda side: side.call("/bin/echo", "same")))

    def test_library_that_speaks(self):
        noisy = "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { (void)!write(2, \"hakmem: hm\\n\", 11); }"
        library = self.library(LIBC_MALLOC.replace("EXTRA", noisy).replace("BIGGER", ""))
        self.assertIn("hakmem: hm", self.outcome(library, lambda side: side.call("/bin/echo", "same")))

    def test_difference(self):
        reason = self.outcome(self.good(), lambda side: f"head\n{side.name}\n")
        self.assertIn("-glibc", reason)
        self.assertIn("+hakmem", reason)

    def test_crash(self):
        reason = self.outcome(self.good(), lambda side: side.call("/bin/sh", "-c", "kill -SEGV $$"))
        self.assertIn("killed by SIGSEGV", reason)

    def test_exit_status(self):
        self.assertIn("exit status 3", self.outcome(self.good(), lambda side: side.call("/bin/sh", "-c", "exit 3")))

    def test_hang(self):
        def run(side):
            return side.call("/bin/sh", "-c", "setsid sleep 4711 & echo $! >pid; wait", seconds=1)
        with harness.two_sides(self.good()) as (side, _):
            with self.assertRaisesRegex(harness.Failure, "no end after 1 s"):
                run(side)
            pid = int((side.folder / "pid").read_text())
        self.assertFalse(alive(pid))

    def test_silence_is_no_proof(self):
        self.assertIn("nothing to compare", self.outcome(self.good(), lambda side: side.call("/bin/true")))

    def test_folder_is_not_compared(self):
        self.assertIsNone(self.outcome(self.good(), lambda side: side.call("/bin/pwd")))

    def test_server_that_dies(self):
        def run(side):
            with side.server("/bin/sh", "-c", "echo gone; exit 1", ready=lambda: False):
                return "never"
        self.assertIn("did not start\n  gone", self.outcome(self.good(), run))

    def test_server_that_crashes_at_its_end(self):
        def run(side):
            ready = side.folder / "ready"
            with side.server("/bin/sh", "-c", f"trap 'kill -ABRT $$' TERM; : > {ready}; while :; do sleep 0.1; done", ready=ready.exists):
                return "ran"
        self.assertIn("killed by SIGABRT", self.outcome(self.good(), run))

    def test_missing_program(self):
        out = io.StringIO()
        self.runner.CASES = {"absent": Case(lambda side: "", {"/usr/bin/no-such-program": "no-such-package"})}
        sys.argv = ["run", "--lib", str(self.good())]
        with contextlib.redirect_stdout(out):
            self.assertEqual(1, self.runner.main())
        self.assertIn("install the Debian package no-such-package", out.getvalue())


class Lists(unittest.TestCase):
    def test_packages(self):
        rows = [line.split(maxsplit=2) for line in (HERE / "packages.txt").read_text().splitlines() if line and line[0] != "#"]
        needs = {(package, path) for case in CASES.values() for path, package in case.needs.items()}
        self.assertEqual(sorted(["programs", package, f"ls {path}"] for package, path in needs), sorted(rows))

    def test_registered(self):
        text = (HERE / "CMakeLists.txt").read_text()
        self.assertEqual(list(CASES), text.split("set(programs ")[1].split(")")[0].split())


if __name__ == "__main__":
    unittest.main()

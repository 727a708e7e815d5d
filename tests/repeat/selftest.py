#!/usr/bin/env python3
"""Shows that `run` finds a workload that fails once in fifty runs, by a hang, a crash, a wrong status or a wrong result, and prints
how to repeat it; and that it reports nothing else."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = "20"  # seconds, for a run that never ends; the others take some milliseconds

# A workload whose 31st run of each fifty, counted in a file beside it, does {fault} instead.
SCRIPT = """#!/bin/sh
count=$(($(cat "$0.count" 2>/dev/null || echo 0) + 1))
echo $count >"$0.count"
if test $((count % 50)) = 31; then {fault}; fi
echo "{name}: 100 operations in 0.001 s, 0.10 M operations/s"
"""

ENTRY = """
[[workload]]
name = "{name}"
group = "synthetic"
command = ["{{workloads}}/{name}", "{{steps}}"]
brief = {{ steps = "1" }}
full = {{ steps = "1000" }}
"""


class Repeat(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.list = self.root / "workloads.toml"

    def add(self, name, fault):
        program = self.root / name
        program.write_text(SCRIPT.format(name=name, fault=fault))
        program.chmod(0o755)
        with self.list.open("a") as file:
            file.write(ENTRY.format(name=name))

    def run_tool(self, *more):
        done = subprocess.run([HERE / "run", "--kind", "workloads", "--list", self.list, "--programs", self.root, "--library", "",
                               "--keep", self.root / "kept", "--limit", LIMIT, *more], capture_output=True, text=True)
        return done.returncode, done.stdout

    def expect(self, name, fault, told, *more):
        self.add(name, fault)
        self.add("sound", "true")
        status, text = self.run_tool("--times", "50", "--machine", "idle", *more)
        self.assertEqual(status, 1, text)
        self.assertIn(f"FAILED {name}, run 31, idle: {told}", text)
        self.assertIn(f"{name}: 1 of 50 runs failed: {self.root / name} 1\n", text)
        self.assertIn("2 cases, 100 runs, 1 failed", text)
        kept = list((self.root / "kept").glob("*"))
        self.assertEqual(len(kept), 1)
        return kept[0].read_text()

    def test_hang(self):
        kept = self.expect("hangs", "sleep 1000000", "a hang: no end after 20.0 s")
        self.assertIn(f"{self.root / 'hangs'} 1\n", kept)
        self.assertIn("---- process ", kept)
        self.assertRegex(kept, r"#0 |there is no gdb")

    def test_crash(self):
        self.expect("crashes", "kill -s SEGV $$", "died of SIGSEGV")

    def test_status(self):
        kept = self.expect("refuses", "echo lost a block >&2; exit 3", "exit status 3")
        self.assertIn("lost a block", kept)

    def test_library_that_is_not_preloaded(self):
        self.expect("alone", "echo \"ERROR: ld.so: object 'x' cannot be preloaded\" >&2", "the library was not preloaded")

    def test_result(self):
        self.expect("garbles", "echo nothing; exit 0", "a wrong result")

    def test_sound_on_both_machines(self):
        self.add("sound", "true")
        status, text = self.run_tool("--times", "3")
        self.assertEqual((status, text.splitlines()[-1]), (0, "1 cases, 6 runs, 0 failed"))

    def test_choice_that_fits_nothing(self):
        self.add("sound", "true")
        self.assertEqual(self.run_tool("--only", "other")[0], 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

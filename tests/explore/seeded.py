"""Builds the explorer with one changed source, and runs it, for faults.py and orders.py.

Only target.c is compiled again; the changed file comes first on the include path.
"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import seeding  # noqa: E402


def build(place, file, text, settings):
    """Builds the explorer with `text` instead of the source `file`; returns its path."""
    seeding.overlay(place, file, text)
    return compiled(place, settings)


def compiled(place, settings):
    """Builds the explorer with the sources in `place` instead of those of the same names; returns its path."""
    compiler, *flags = settings.command
    # -O0: compiling takes nearly all the time, and most of the run time is in the callbacks, which are compiled already.
    subprocess.run([compiler, f"-I{place}", *flags, "-w", "-O0", "-c", HERE / "target.c", "-o", place / "target.o"], check=True)
    wraps = [flag for flag in flags if flag.startswith("-Wl,")]
    subprocess.run([compiler, "-pthread", "-no-pie", place / "target.o", *settings.objects, *wraps, "-o", place / "explore"], check=True)
    return place / "explore"


def scenarios(program):
    return subprocess.run([program, "-l"], check=True, capture_output=True, text=True).stdout.split()


def failure(program, options, seconds=900):
    """The first scenario that fails, and how; None if none does."""
    run = subprocess.run([program, "-q", *options], capture_output=True, text=True, timeout=seconds)
    scenario = None
    for line in run.stdout.splitlines():
        if not line.startswith(" "):
            scenario = line
        if "FAILED" in line and run.returncode == 1:
            return scenario, line.strip()
    if run.returncode != 0:
        raise OSError(f"the explorer ended with {run.returncode}: {run.stdout[-300:]}{run.stderr[-300:]}")
    return None

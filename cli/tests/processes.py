"""Programs that run under hakmem, to be looked at from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hakmem

LIBRARY = Path(hakmem.__file__).parent / "libhakmem.so"
KNOWN = Path(__file__).parent / "known.c"
ROOT = Path(__file__).parents[2]


def compiled(folder: Path, source: Path = KNOWN, *options: str) -> Path:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    out = folder / source.stem
    subprocess.run([compiler, "-O1", "-pthread", *options, "-o", out, source], check=True)
    return out


def ends(process: str) -> bool:
    """Whether it ends within seconds, waited for or not: who is killed takes a moment."""
    stat = Path(f"/proc/{process.strip()}/stat")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] in "XZ":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def with_own(folder: Path) -> Path:
    """A program with a hakmem within it, as of an archive without libc's names."""
    options = ["-O2", "-g", "-std=gnu11", "-fvisibility=hidden", "-D_GNU_SOURCE", "-DHAK_ARCHIVE=1", "-DHAK_OVERRIDE=0"]
    folders = [f"-I{ROOT / name}" for name in ("src", "include")]
    return compiled(folder, Path(__file__).parent / "within.c", *options, *folders, str(ROOT / "src" / "hakmem.c"))


@contextmanager
def running(*command: str | Path, folder: Path | None = None, **variables: str) -> Iterator[subprocess.Popen]:
    """The program under hakmem, from its first line of output on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    environment |= {"LD_PRELOAD": str(LIBRARY), "HAKMEM_INSIGHT": "1"} | variables
    with subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()

"""The man pages, and docs/commands.md, are what the command line says of itself; the former come with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "packaging" / "man"


def test_pages_are_not_stale():
    result = subprocess.run([sys.executable, ROOT / "tools" / "gen_man", "--check"], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_pages_are_installed():
    for page in PAGES.iterdir():
        assert (Path(sys.prefix) / "share" / "man" / "man1" / page.name).read_text() == page.read_text()
    assert (PAGES / "hakmem-run.1").exists()

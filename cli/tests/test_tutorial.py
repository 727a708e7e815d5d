"""The tutorial's programs show what the tutorial says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from processes import running

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = DOCS / "tutorial"


def test_what_it_leads_to_is_there():
    text = (DOCS / "tutorial.md").read_text()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (DOCS / link).is_file(), link


def test_the_server_grows_where_the_tutorial_says(hakmem, tmp_path):
    compiler = shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    program = tmp_path / "server"
    subprocess.run([compiler, "-O2", "-g", "-pthread", "-o", program, PROGRAMS / "server.cpp"], check=True)
    with running(program) as process:
        for file in ("before", "after"):
            time.sleep(3)
            assert hakmem("profile", "--save", str(tmp_path / file), str(process.pid)).returncode == 0
    shown = hakmem("diff", "--json", str(tmp_path / "before"), str(tmp_path / "after"))
    assert shown.returncode == 1, shown.stderr
    most = max(json.loads(shown.stdout)["sites"], key=lambda each: each["change"])
    line = next(
        number for number, line in enumerate((PROGRAMS / "server.cpp").read_text().splitlines(), 1) if "void remember" in line
    )
    assert most["frames"][0]["function"].startswith(("std::", "void std::", "operator new"))
    frames = most["frames"][most["wanted_by"] :]
    assert frames[0]["function"].endswith("Sessions::remember") and frames[0]["place"] == f"server.cpp:{line}"
    assert frames[1]["function"].endswith("Sessions::answer")

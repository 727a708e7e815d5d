"""bench/scaling: what is kept of the counts."""

from __future__ import annotations

import argparse
import json


def test_what_two_places_have_in_one_line_counts_together(bench_script, monkeypatch, tmp_path):
    scaling = bench_script("scaling/scaling.py")
    places = {16: (1.0, 2.0, 3.0), 32: (10.0, 20.0, 30.0), 48: (5.0, 0.0, 0.0), 64: (0.0, 0.0, 0.0)}
    lines = {16: "one a.c:1", 32: "one a.c:1", 48: "other b.c:2", 64: "none c.c:3"}
    monkeypatch.setattr(scaling, "measure", lambda *_: places)
    monkeypatch.setattr(scaling, "names", lambda *_: lines)
    scaling.table(argparse.Namespace(only=["pass-64"], output=tmp_path / "scaling.json"))
    kept = json.loads((tmp_path / "scaling.json").read_text())["pass-64"]
    assert kept["8"] == {"one a.c:1": [11.0, 22.0, 33.0], "other b.c:2": [5.0, 0.0, 0.0]}


def test_one_count_out_of_bounds_is_no_failure_and_six_of_eleven_are(bench_script, monkeypatch, capsys):
    scaling = bench_script("scaling/scaling.py")
    monkeypatch.setattr(scaling, "CHECKED", {"pass-64": ((100, 700), (-50, 90))})

    def checked(*writes: int) -> int:
        left = list(writes)
        monkeypatch.setattr(scaling, "measure", lambda *_: {0: (500, left.pop(0), 0)})
        status = scaling.check(argparse.Namespace())
        assert not left
        return status

    assert checked(20, 30) == 0
    assert checked(91, *[91] * 4, *[20] * 6, 30) == 0
    assert checked(91, *[91] * 5, *[20] * 5, 30) == 1 and "FAIL pass-64: 91.0 and 30.0 writes" in capsys.readouterr().out

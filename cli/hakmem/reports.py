"""Reads the statistics that hakmem writes as JSON, and reports a program's at its end: hakmem run --stats."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from hakmem import output, render
from hakmem.errors import Failure
from hakmem.exits import WHY_NONE, Ended

_SUFFIX = ".json"
_PAST_FIGURES = 1 << 64
_TEXT = re.compile(r"hakmem \S+, process \d")  # how a report as text begins


def _check_figures(name: str, part: dict[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        figure = part.get(key, 0)
        if not isinstance(figure, int) or not 0 <= figure < _PAST_FIGURES:
            raise Failure(f"{name}: not a report of hakmem: {key} is not a valid figure")


def _check(name: str, report: Any) -> None:
    """Checks the parts of a report that are shown; the rest may be from a later version."""
    if not isinstance(report, dict):
        raise Failure(f"{name}: not a report of hakmem: a JSON object is expected")
    _check_figures(name, report, render.STATS_FIGURES)
    if not isinstance(report.get("limit_reason", ""), str):
        raise Failure(f"{name}: not a report of hakmem: limit_reason is not text")
    for key, figures in render.STATS_ROWS.items():
        rows = report.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Failure(f"{name}: not a report of hakmem: {key} is not a list of JSON objects")
        for row in rows:
            _check_figures(name, row, figures)


def read(file: TextIO) -> list[dict[str, Any]]:
    """The reports in `file`, in order; each is a JSON object."""
    try:
        text = file.read()
    except UnicodeDecodeError:
        raise Failure(f"{file.name}: not a report of hakmem: it is not text") from None
    decoder = json.JSONDecoder()
    reports = []
    position = 0
    try:
        while text[position:].strip():
            position += len(text[position:]) - len(text[position:].lstrip())
            report, position = decoder.raw_decode(text, position)
            _check(file.name, report)
            reports.append(report)
    except json.JSONDecodeError as error:
        if _TEXT.match(text):
            what = "a report as text, which can be read as it is"
            raise Failure(f"{file.name}: {what}; this command reads those that --stats-file writes to a file named *.json") from None
        raise Failure(f"{file.name}: not a report of hakmem: {error.msg} in line {error.lineno}") from None
    except (ValueError, RecursionError):
        raise Failure(f"{file.name}: not a report of hakmem: a number is too long, or it is nested too deeply") from None
    if not reports:
        raise Failure(f"{file.name}: not a report of hakmem: it is empty")
    return reports


@dataclass(frozen=True)
class AtExit:
    """Reports the statistics of the program itself and, with `children`, of the processes that it started.

    They go to `file`, as JSON if its name ends in .json and as text otherwise, or to standard error. In a file's name %p stands for
    the process's number; the name of a child's file always contains it.
    """

    file: str | None
    children: bool
    json: bool = False

    def variables(self, directory: Path) -> dict[str, str]:
        # Each process writes a file of its own: it may have closed standard error, and must not overwrite another's. A nested
        # hakmem run --stats writes its program's report here too, as JSON because of the suffix.
        return {"HAKMEM_STATS": "1", "HAKMEM_STATS_FILE": str(directory / f"%p{_SUFFIX}")}

    def tell(self, directory: Path, ended: Ended) -> int:
        own = directory / f"{ended.number}{_SUFFIX}"
        others = set(directory.glob(f"*{_SUFFIX}")) - {own}
        if own.exists():
            for report in _reports(own):
                self._write({"name": ended.name} | report, self._place(ended.number, own=True))
        else:
            hint = "; processes that it started did: see --stats-children" if others and not self.children else ""
            print(f"hakmem: {ended.how} and left no statistics: {WHY_NONE}{hint}", file=sys.stderr)
        if self.children:
            for other in sorted(others, key=lambda path: path.stat().st_mtime_ns):
                for report in _reports(other):
                    self._write(report, self._place(report.get("pid", 0), own=False))
        return 0

    def _place(self, number: int, *, own: bool) -> Path | None:
        if not self.file:
            return None
        if own or "%p" in self.file:
            return Path(output.of_process(self.file, number))
        path = Path(self.file)
        return path.with_name(f"{path.stem}.{number}{path.suffix}")

    def _write(self, report: dict[str, Any], place: Path | None) -> None:
        as_json = place.suffix == _SUFFIX if place else self.json
        try:
            with place.open("w", encoding="utf-8", errors="replace") if place else contextlib.nullcontext(sys.stderr) as file:
                if as_json:
                    json.dump(report, file, indent=1)
                    file.write("\n")
                else:
                    render.write_wide(render.stats_tables(report), file)
        except OSError as error:
            raise Failure(f"{place or 'standard error'}: {error.strerror}") from None


def _reports(path: Path) -> Iterator[dict[str, Any]]:
    """What the process wrote; prints a line to standard error if it was cut short."""
    try:
        with path.open() as file:
            yield from read(file)
    except Failure as failure:
        print(f"hakmem: {failure.message}", file=sys.stderr)

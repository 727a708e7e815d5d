"""Reads the statistics that hakmem writes as JSON."""

from __future__ import annotations

import json
from typing import Any, TextIO

from hakmem.errors import Failure


def read(file: TextIO) -> list[dict[str, Any]]:
    """The reports in `file`, one after the other; each is a JSON object."""
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
            if not isinstance(report, dict):
                raise Failure(f"{file.name}: not a report of hakmem: a JSON object is expected")
            reports.append(report)
    except json.JSONDecodeError as error:
        raise Failure(f"{file.name}: not a report of hakmem: {error.msg} in line {error.lineno}") from None
    if not reports:
        raise Failure(f"{file.name}: not a report of hakmem: it is empty")
    return reports

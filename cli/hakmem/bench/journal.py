"""Writes each finished run immediately, as a line of JSON, so that a stopped benchmark can go on.

The first line is the plan; a last line that was cut off while it was written is dropped. Figures have six digits, so that a report
made later from the packed results (kept.py) is the same to the last character.
"""

from __future__ import annotations

import json
from pathlib import Path

from hakmem.errors import Failure

FILE = "runs.jsonl"
RESULTS = "results.json"  # written beside it when all runs are done
_DIGITS = 6

# The parts of the plan that must not have changed since the earlier runs.
_KEPT = ("format", "choices", "machine", "allocators", "workloads")


def _short(value: object) -> object:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def stored_plan(output: Path) -> dict:
    try:
        with (output / FILE).open() as file:
            line = file.readline()
        if not line.endswith("\n"):
            raise ValueError("cut off")
        return json.loads(line)
    except (OSError, ValueError):
        raise Failure(f"{output} holds no benchmark to resume") from None


class Journal:
    def __init__(self, output: Path, plan: dict, resume: bool) -> None:
        self.plan = plan
        self.entries: dict[tuple, dict] = {}
        self._path = output / FILE
        if resume:
            self._read(stored_plan(output))
        elif self._path.exists() and b"\n" in self._path.read_bytes():
            raise Failure(f"{output} already holds a benchmark: continue it with --resume, or choose another --output")
        else:
            output.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)  # a plan that was cut off
            self._write(plan)

    def _read(self, stored: dict) -> None:
        changed = [key for key in _KEPT if stored.get(key) != self.plan[key]]
        if changed:
            raise Failure(f"{self._path.parent} can't be resumed: changed since it began: {', '.join(changed)}")
        self.plan = stored
        whole = self._path.read_bytes()
        whole = whole[: whole.rfind(b"\n") + 1]
        with self._path.open("r+b") as file:
            file.truncate(len(whole))
        for line in whole.splitlines()[1:]:
            self._keep(json.loads(line))

    def _keep(self, entry: dict) -> None:
        self.entries[(entry["kind"], entry["workload"], entry["allocator"], entry["repetition"])] = entry

    def _write(self, value: dict) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(value) + "\n")

    def add(self, entry: dict) -> None:
        short = {key: _short(value) for key, value in entry.items()}
        self._write(short)
        self._keep(short)

    def failed(self, workload: str, allocator: str) -> bool:
        return any(
            entry["failure"] and entry["kind"] == "run"
            for (_, *pair, _), entry in self.entries.items()
            if pair == [workload, allocator]
        )

    def as_json(self) -> dict:
        return self.plan | {"runs": list(self.entries.values())}

"""What changed since an older run: the same workloads in the same sizes, under allocators of the same names.

The machine may have changed too; the change of an allocator with an unchanged version shows by how much.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hakmem.bench.analysis import NOTABLE, Results, geometric_mean
from hakmem.bench.journal import RESULTS
from hakmem.bench.workloads import Workload
from hakmem.errors import Failure


@dataclass(frozen=True)
class Change:
    before: float
    now: float
    beyond: bool  # the ranges of the repetitions do not touch, and the change is notable

    @property
    def ratio(self) -> float:
        return self.now / self.before


def read(folder: Path) -> dict:
    """Reads results, and checks that a report can be made from them: after all runs it would be too late to find out."""
    try:
        stored = json.loads((folder / RESULTS).read_text())
    except (OSError, ValueError) as error:
        raise Failure(f"{folder / RESULTS}: {error}") from None
    try:
        Results(stored)
        told = (stored["size"], stored["begun"], stored["hakmem"]["commit"], *(entry["version"] for entry in stored["allocators"]))
        if not all(isinstance(one, str) for one in told):
            raise TypeError
    except (KeyError, TypeError, AttributeError):
        raise Failure(f"{folder / RESULTS}: not results of hakmem bench, or those of another version") from None
    return stored


def newest(folder: Path, output: Path, size: str) -> Path | None:
    """The newest finished run in `folder` that is older than the one in `output` and of the same size.

    The name of a run is the time when it began.
    """
    older = sorted((place for place in folder.glob(f"*/{RESULTS}") if place.parent != output), reverse=True)
    if output.parent == folder:
        older = [place for place in older if place.parent.name < output.name]
    for place in older:
        try:
            if read(place.parent)["size"] == size:
                return place.parent
        except Failure:
            continue  # cut off while it was written, or from another version
    return None


def _work(entry: Workload, size: str) -> tuple:
    return entry.command, entry.sizes(size), entry.env, entry.server


class Since:
    def __init__(self, now: Results, older: dict) -> None:
        self.now = now
        self.before = Results(older)
        size = now.stored["size"]
        same = {entry.name: _work(entry, size) for entry in self.before.plain}
        if self.before.stored["size"] != size:
            same = {}
        self.workloads = [entry.name for entry in now.plain if same.get(entry.name) == _work(entry, size)]
        self.allocators = [name for name in now.allocators if name in self.before.allocators]

    def version(self, allocator: str) -> str:
        """The versions before and now, or one if it stayed the same."""
        before, now = (
            next(entry["version"] for entry in results.stored["allocators"] if entry["name"] == allocator)
            for results in (self.before, self.now)
        )
        return now if before == now else f"{before} → {now}"

    def change(self, workload: str, allocator: str, key: str) -> Change | None:
        before, now = (results.spread(workload, allocator, key) for results in (self.before, self.now))
        if workload not in self.workloads or not before or not now or not before.median or not now.median:
            return None
        ratio = now.median / before.median
        beyond = not now.overlaps(before) and not 1 / NOTABLE <= ratio <= NOTABLE
        return Change(before.median, now.median, beyond)

    def common(self, key: str) -> list[str]:
        """The workloads that all the allocators finished in both runs."""
        return [name for name in self.workloads if all(self.change(name, one, key) for one in self.allocators)]

    def mean(self, allocator: str, key: str) -> float | None:
        """The geometric mean of now / before."""
        return geometric_mean(self.change(name, allocator, key).ratio for name in self.common(key))

    def notable(self, allocator: str, key: str) -> list[tuple[str, Change]]:
        """The changes beyond the spread, the worst first."""
        found = [(name, self.change(name, allocator, key)) for name in self.workloads]
        return sorted(
            ((name, change) for name, change in found if change and change.beyond), key=lambda entry: -entry[1].ratio
        )

    def other_machine(self) -> list[str]:
        """The facts about the machine that differ."""
        one, other = self.before.stored.get("machine", {}), self.now.stored.get("machine", {})
        return [name for name in {**one, **other} if one.get(name) != other.get(name)]

"""hakmem run --profile and --leaks: what a program still holds when it exits, and whether that grew since an earlier run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem import insight, output, render
from hakmem.command_line import ERROR
from hakmem.errors import Failure
from hakmem.exits import WHY_NONE, Ended

if TYPE_CHECKING:
    from hakmem.estimates import Stacks
    from hakmem.snapshots import Snapshot

GROWN = 1


def _show_live(file: Path, top: int, depth: int) -> None:
    from hakmem import snapshots, symbols

    read = snapshots.read(str(file))
    names = symbols.Symbols(read)
    shown, count = insight.rows(read, names, insight.SITE, top)
    print("hakmem: live at exit", file=sys.stderr)
    for line in insight.heading(read):
        print(line, file=sys.stderr)
    render.print_wide(insight.profile_table(read, shown, count, depth), to_errors=True)
    for remark in names.remarks():
        print(f"hakmem: {remark}", file=sys.stderr)


def read_baseline(file: str) -> Snapshot | Stacks:
    """What an earlier run held. The exit code of a failure is not GROWN, which would be an answer."""
    from hakmem import diff

    try:
        return diff.read(file)
    except Failure as failure:
        failure.exit_code = ERROR
        raise
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", ERROR) from None


def _grew(before: Snapshot | Stacks, after: Path, top: int, depth: int) -> bool:
    """Shows which sites hold more than in an earlier run, beyond chance."""
    from hakmem import diff

    difference = diff.compare(before, diff.read(str(after)))
    for line in insight.difference_heading(difference):
        print(line, file=sys.stderr)
    difference.changes = [change for change in difference.changes if change.told and change.change > 0]
    if difference.changes:
        render.print_wide(insight.difference_table(difference, top, depth, False), to_errors=True)
    else:
        print("hakmem: no site holds more at exit, beyond chance", file=sys.stderr)
    return bool(difference.changes)


@dataclass(frozen=True)
class Holding:
    """Writes the snapshot of the program's exit to the file `keep`, and with `show` to standard error as a table.

    The exit code is GROWN if a site holds more than in the snapshot `baseline`, if there is no snapshot, or if the file
    can't be written.
    """

    keep: str | None
    show: bool
    baseline: Snapshot | Stacks | None
    top: int = 20
    depth: int = 4

    def variables(self, directory: Path) -> dict[str, str]:
        # A file for each process: children leave snapshots too, and must not replace the program's.
        return {"HAKMEM_PROFILE": str(directory / "%p"), "HAKMEM_INSIGHT": "1"}

    def tell(self, directory: Path, ended: Ended) -> int:
        file = directory / str(ended.number)
        if not file.exists():
            print(f"hakmem: {ended.how} and left no snapshot: {WHY_NONE}", file=sys.stderr)
            return GROWN
        kept = not self.keep or self._keep(file, output.of_process(self.keep, ended.number))
        if self.show:
            _show_live(file, self.top, self.depth)
        grew = self.baseline is not None and _grew(self.baseline, file, self.top, self.depth)
        return GROWN if grew or not kept else 0

    @staticmethod
    def _keep(file: Path, name: str) -> bool:
        """Writes the file; returns False on failure, so that the rest is still shown."""
        try:
            output.write(name, file.read_bytes())
        except Failure as failure:
            failure.show()
            return False
        return True

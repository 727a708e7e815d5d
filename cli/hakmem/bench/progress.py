"""The benchmark's progress: on a terminal a bar with the time left, elsewhere a line for each run."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_SPEED_SECONDS = 3600  # runs differ much, so the estimate uses a long history


class Steps:
    def __init__(self, total: int, done: int) -> None:
        self._done, self._total = done, total
        self._bar = None
        if sys.stderr.isatty():
            self._bar = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left:"),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
                transient=True,
                speed_estimate_period=_SPEED_SECONDS,
            )
            self._task = self._bar.add_task("", total=total, completed=done)

    def __enter__(self) -> Steps:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def begin(self, text: str) -> None:
        if self._bar:
            self._bar.update(self._task, description=text)

    def tell(self, text: str) -> None:
        """Prints a line that stays."""
        if self._bar:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self, text: str, keep: bool = False) -> None:
        """Ends a step; on a terminal its line disappears unless `keep`."""
        self._done += 1
        if not self._bar:
            print(f"[{self._done}/{self._total}] {text}", file=sys.stderr, flush=True)
            return
        self._bar.update(self._task, completed=self._done)
        if keep:
            self.tell(text)

"""Stacks as tables show them: from the call that wanted the memory, or further in where lines would look alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

Named = tuple[str, str]  # a call's function, and its place in the source or ""


@dataclass(frozen=True)
class Calls:
    """A whole stack."""

    frames: list[Named] = field(default_factory=list)  # the innermost first
    first: int = 0  # the call that wanted the memory; those before it only pass it on

    @property
    def shown(self) -> list[Named]:
        return self.frames[self.first :]


class Called:
    """What has a stack."""

    calls: Calls

    @property
    def frames(self) -> list[Named]:
        """The calls from the one that wanted the memory."""
        return self.calls.shown

    @property
    def name(self) -> str:
        """The function that wanted the memory, or what else it is of."""
        return self.frames[0][0]


def told_apart(stacks: Sequence[Calls]) -> list[list[Named]]:
    """What is shown of each stack. Those that would look alike begin with the call in which they differ, if there is one."""
    alike: dict[tuple[Named, ...], list[Calls]] = defaultdict(list)
    for each in stacks:
        alike[tuple(each.shown)].append(each)
    return [_apart(each, alike[tuple(each.shown)]) for each in stacks]


def _apart(calls: Calls, alike: list[Calls]) -> list[Named]:
    for first in range(calls.first, -1, -1):
        shown = calls.frames[first:]
        if sum(each.frames[-len(shown) :] == shown for each in alike) == 1:
            return shown
    return calls.shown

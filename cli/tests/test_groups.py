"""Processes that their control group has frozen."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hakmem import groups, insight_commands, memory, outside_events, request_commands


class Tree:
    """A /proc and groups of both versions, as the kernel shows them, with process 7 in the group pod/app."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.new, self.old = folder / "proc", folder / "unified", folder / "freezer"
        for each in (self.proc / "self", self.proc / "7", self.new / "pod/app", self.old / "pod/app"):
            each.mkdir(parents=True)
        mounts = f"31 23 0:28 / {self.new} rw - cgroup2 cgroup2 rw\n32 23 0:29 / {self.old} rw - cgroup cgroup rw,freezer\n"
        (self.proc / "self/mountinfo").write_text(mounts)
        (self.proc / "7/cgroup").write_text("6:freezer:/pod/app\n4:memory:/pod\n0::/pod/app\n")
        self.write(self.new / "pod/app/cgroup.events", "populated 1\nfrozen 0\n")
        self.write(self.old / "pod/app/freezer.state", "THAWED\n")
        self.write(self.proc / "7/wchan", "hrtimer_nanosleep")

    @staticmethod
    def write(file: Path, text: str) -> None:
        file.write_text(text)

    def is_frozen(self) -> bool:
        return groups.is_frozen(7, self.proc)


@pytest.fixture
def tree(tmp_path) -> Tree:
    return Tree(tmp_path)


def test_a_process_that_runs_is_not_frozen(tree):
    assert not tree.is_frozen()
    tree.write(tree.proc / "7/cgroup", "6:freezer:/elsewhere\n0::/elsewhere\n")
    assert not tree.is_frozen()
    tree.write(tree.proc / "7/cgroup", "")
    assert not tree.is_frozen()
    assert not groups.is_frozen(8, tree.proc)


def test_a_group_of_version_2_is_frozen(tree):
    tree.write(tree.new / "pod/app/cgroup.events", "populated 1\nfrozen 1\n")
    assert tree.is_frozen()


@pytest.mark.parametrize("state", ["FROZEN", "FREEZING"])
def test_a_group_of_version_1_is_frozen(tree, state):
    tree.write(tree.old / "pod/app/freezer.state", f"{state}\n")
    assert tree.is_frozen()


@pytest.mark.parametrize("place", ["do_freezer_trap", "__refrigerator"])
def test_where_groups_are_not_seen_the_place_in_the_kernel_tells(tree, place):
    tree.write(tree.proc / "self/mountinfo", "")
    assert not tree.is_frozen()
    tree.write(tree.proc / "7/wchan", place)
    assert tree.is_frozen()


def test_the_commands_say_so(tree, monkeypatch):
    monkeypatch.setattr(memory, "Process", lambda process: process)
    monkeypatch.setattr(memory, "is_stopped", lambda process: False)
    monkeypatch.setattr(outside_events, "resident_bytes", lambda process: 0)
    monkeypatch.setattr(outside_events, "collect", lambda process, seconds: False)
    monkeypatch.setattr(groups, "is_frozen", lambda process: process == 7)
    asked = CliRunner().invoke(request_commands.collect_command, ["7"])
    assert asked.exit_code == 1 and "process 7 is frozen" in asked.output
    assert "made no call" in CliRunner().invoke(request_commands.collect_command, ["8"]).output
    assert "frozen" in insight_commands._why_nothing(7) and "frozen" not in insight_commands._why_nothing(8)

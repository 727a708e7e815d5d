"""The control groups of a process, as files show them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hakmem.names import kernel_lines

PROC = Path("/proc")


def folders(process: int, controller: str, proc: Path = PROC) -> Iterator[tuple[Path, Path, bool]]:
    """The folders of the process's groups that have the controller: the innermost, the outermost that is visible here, and whether they are
    of version 2. The mount's root may itself be a group, as in a container without a cgroup namespace, where paths are the machine's."""
    paths = [line.split(":", 2)[1:] for line in kernel_lines(proc / str(process) / "cgroup")]
    for line in kernel_lines(proc / "self/mountinfo"):
        mount, _, kind = line.partition(" - ")
        root, point = mount.split()[3:5]
        name, *_, options = kind.split()
        unified = name == "cgroup2"
        if not unified and (name != "cgroup" or controller not in options.split(",")):
            continue
        for controllers, path in paths:
            is_its = not controllers if unified else controller in controllers.split(",")
            within = Path(path).parts[len(Path(root).parts) :]
            if is_its and Path(root) in (Path(path), *Path(path).parents) and ".." not in within:
                yield Path(point, *within), Path(point), unified


def _group_is_frozen(folder: Path, unified: bool) -> bool:
    """Whether the group, or one that contains it, is frozen."""
    with contextlib.suppress(OSError):
        if unified:
            return "frozen 1" in [line.strip() for line in kernel_lines(folder / "cgroup.events")]
        return [line.strip() for line in kernel_lines(folder / "freezer.state")] in (["FROZEN"], ["FREEZING"])
    return False


def is_frozen(process: int, proc: Path = PROC) -> bool:
    """Whether the process is frozen: by its groups, or, where these can't be seen, by where it waits in the kernel."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        if any(_group_is_frozen(folder, unified) for folder, _, unified in folders(process, "freezer", proc)):
            return True
    with contextlib.suppress(OSError):
        return "".join(kernel_lines(proc / str(process) / "wchan")).strip() in ("do_freezer_trap", "__refrigerator")
    return False

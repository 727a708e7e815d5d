"""Reads bench/workloads.toml; bench/README.md describes it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hakmem.errors import Failure

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

FILE = Path("bench/workloads.toml")
SYNTHETIC = "synthetic"  # the group of the programs in bench/workloads
APART = "figures"  # the group that runs only if it is named


@dataclass(frozen=True)
class Server:
    """The command that runs under the allocator, and one that succeeds once the server answers."""

    command: list[str]
    ready: list[str]


@dataclass(frozen=True)
class Workload:
    name: str
    group: str
    family: str
    about: str
    command: list[str]
    full: dict[str, str]
    brief: dict[str, str]
    threads: int | None = None
    prepare: list[str] | None = None
    version: list[str] | None = None
    env: dict[str, str] = field(default_factory=dict)
    server: Server | None = None
    figures: bool = False  # it prints figures that it measures itself
    packages: str = "bench"  # the group of Debian packages that it needs

    def sizes(self, size: str) -> dict[str, str]:
        return self.full if size == "full" else self.brief


def expand(words: Iterable[str], values: dict[str, str]) -> list[str]:
    """The words with each {name} in `values` replaced; other braces belong to the command."""
    pattern = re.compile("|".join(re.escape("{" + name + "}") for name in values))
    return [pattern.sub(lambda match: values[match[0][1:-1]], word) for word in words]


def _parse(entry: dict, place: str) -> Workload:
    def build(kind: type, values: dict):
        try:
            return kind(**values)
        except TypeError as error:
            raise Failure(f"{place}: {str(error).split(') ', 1)[-1].removeprefix(kind.__name__)}") from None

    values = {"full": {}, "brief": {}} | entry
    for size in ("full", "brief"):
        values[size] = {name: str(value) for name, value in values[size].items()}
    if values["full"].keys() != values["brief"].keys():
        raise Failure(f"{place}: `full` and `brief` name different sizes")
    if "server" in values:
        values["server"] = build(Server, values["server"])
    workload = build(Workload, values)
    if not isinstance(workload.figures, bool) or (workload.figures and workload.server):
        raise Failure(f"{place}: `figures` is true or false, and not for a server")
    lists = [workload.command, workload.prepare, workload.version]
    lists += [workload.server.command, workload.server.ready] if workload.server else []
    for words in lists:
        if words is not None and (not isinstance(words, list) or not words):
            raise Failure(f"{place}: a command is a list of words")
    return workload


def load(file: Path) -> list[Workload]:
    try:
        entries = tomllib.loads(file.read_text()).get("workload", [])
    except (OSError, ValueError) as error:
        raise Failure(f"{file}: {error}") from None
    found = [_parse(entry, f"{file}: {entry.get('name', f'workload {i}')}") for i, entry in enumerate(entries, 1)]
    names = [workload.name for workload in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        raise Failure(f"{file}: {name} is listed twice")
    return found


def _matching(workloads: list[Workload], patterns: Iterable[str]) -> list[Workload]:
    """The workloads with a name, family, group or packages that match a pattern; a pattern that matches none is an error."""

    def matches(workload: Workload, pattern: str) -> bool:
        texts = (workload.name, workload.family, workload.group, workload.packages)
        return any(fnmatch.fnmatchcase(text, pattern) for text in texts)

    patterns = list(patterns)
    for pattern in patterns:
        if not any(matches(workload, pattern) for workload in workloads):
            raise Failure(f"no workload, family or group matches {pattern!r}; hakmem bench --list shows them")
    return [workload for workload in workloads if any(matches(workload, pattern) for pattern in patterns)]


def choose(
    workloads: list[Workload], patterns: Iterable[str], threads: Iterable[int], without: Iterable[str] = ()
) -> tuple[list[Workload], list[Workload]]:
    """The workloads that match a pattern and have a wanted number of threads, and those of them that `without` leaves out.

    Without a pattern, all but the group APART match.
    """
    patterns, threads = list(patterns), set(threads)
    asked = _matching(workloads, patterns) if patterns else [one for one in workloads if one.group != APART]
    asked = [workload for workload in asked if not threads or workload.threads in threads]
    left_out = _matching(workloads, without)
    chosen = [workload for workload in asked if workload not in left_out]
    if not chosen:
        raise Failure("this choice leaves no workload; hakmem bench --list shows all")
    return chosen, [workload for workload in asked if workload in left_out]


def lines_of_scaling(workloads: list[Workload]) -> list[list[Workload]]:
    """Groups of workloads that differ only in the number of threads, the fewest threads first."""

    def alike(one: Workload, other: Workload) -> bool:
        return (
            (one.family, len(one.command)) == (other.family, len(other.command))
            and one.env == other.env
            and all(
                a == b or (a, b) == (str(one.threads), str(other.threads))
                for a, b in zip(one.command, other.command)
            )
        )

    lines: list[list[Workload]] = []
    for workload in workloads:
        if workload.threads is None:
            continue
        line = next((line for line in lines if alike(line[0], workload)), None)
        if line is None:
            lines.append([workload])
        else:
            line.append(workload)
    lines = [sorted(line, key=lambda workload: workload.threads) for line in lines]
    return [line for line in lines if len({workload.threads for workload in line}) > 1]

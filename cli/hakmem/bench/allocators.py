"""The allocators: the system's malloc, hakmem, and the peers that `make peers` built."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hakmem import library as library_queries
from hakmem import preload
from hakmem.bench import facts
from hakmem.errors import Failure
from hakmem.runs import HAKMEM, SYSTEM

BASELINE = "baseline"
MANIFEST = Path("peers/manifest.json")  # below the directory of the build


@dataclass(frozen=True)
class Allocator:
    name: str
    title: str
    version: str
    source: str
    library: str | None  # to preload; None for the system's own
    digest: str | None = None  # of the library's bytes, so that a benchmark is not resumed with another build
    env: dict[str, str] = field(default_factory=dict)  # what its manual requires

    @property
    def added(self) -> list[str]:
        """The environment variables for a command under this allocator."""
        preloaded = {"LD_PRELOAD": self.library} if self.library else {}
        return [f"{name}={value}" for name, value in (preloaded | self.env).items()]


def preloaded(
    name: str, title: str, version: str, source: str, library: str | Path, env: dict[str, str] | None = None
) -> Allocator:
    path = preload.library(str(library))
    check_preload(path)
    return Allocator(name, title, version, source, str(path), hashlib.sha256(path.read_bytes()).hexdigest(), env or {})


def check_preload(path: Path) -> None:
    """Fails if the library can't be loaded: the dynamic loader would go on without it, and the system's malloc would be measured."""
    environment = os.environ | {"LD_PRELOAD": str(path)}
    done = subprocess.run(["true"], env=environment, capture_output=True, text=True, errors="surrogateescape")
    if done.returncode or "LD_PRELOAD" in done.stderr:
        raise Failure(f"{path} can't be preloaded: {done.stderr.strip() or f'exit {done.returncode}'}")


def hakmem(name: str, library: Path, source: str) -> Allocator:
    return preloaded(name, name, library_queries.version(library), source, library)


def system() -> Allocator:
    return Allocator(SYSTEM, "system malloc", facts.c_library(), facts.distribution(), None)


def peers(manifest: Path, wanted: Callable[[str], bool] = lambda name: True) -> list[Allocator]:
    """The peers in the manifest with a wanted name."""
    if not manifest.exists():
        return []
    try:
        entries = json.loads(manifest.read_text())
        return [
            preloaded(
                entry["name"],
                entry["title"],
                entry["version"],
                entry["source"],
                manifest.parent / entry["library"],
                entry.get("env"),
            )
            for entry in entries
            if wanted(entry["name"])
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"{manifest}: {error!r}") from None


def known(build: Path, library: Path, names: Sequence[str] = ()) -> list[Allocator]:
    """The system's malloc, hakmem, and the named peers, or all: the library of a peer that is not named is not checked."""
    ours = [system(), hakmem(HAKMEM, library, "this tree")]
    return ours + peers(build / MANIFEST, lambda name: not names or name in names)


def two_builds(library: Path, baseline: Path) -> list[Allocator]:
    return [hakmem(BASELINE, baseline, str(baseline)), hakmem(HAKMEM, library, str(library))]


def choose(allocators: list[Allocator], names: Iterable[str]) -> list[Allocator]:
    names = list(names)
    for name in names:
        if name not in [allocator.name for allocator in allocators]:
            raise Failure(f"no allocator {name!r}; hakmem bench --list shows them")
    return [allocator for allocator in allocators if not names or allocator.name in names]

"""Finds the allocators that hakmem is compared with: by path, among those that `make peers` built, or among the system's libraries."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hakmem.bench import allocators
from hakmem.bench.allocators import Allocator
from hakmem.errors import Failure
from hakmem.names import lines_of
from hakmem.runs import HAKMEM, SYSTEM

SECURE = "hakmem-secure"

_ROOT = Path("/")
_FOLDERS = ("usr/lib/*", "usr/lib", "usr/lib64", "usr/local/lib/*", "usr/local/lib", "usr/lib/llvm-*/lib/clang/*/lib/linux")


@dataclass(frozen=True)
class _Known:
    """The names of an allocator's library, and the Debian package that contains it."""

    patterns: tuple[str, ...]
    package: str = ""


_KNOWN = {
    "jemalloc": _Known(("libjemalloc.so*",), "libjemalloc2"),
    "tcmalloc": _Known(("libtcmalloc_minimal.so*", "libtcmalloc.so*"), "libtcmalloc-minimal4"),
    "mimalloc": _Known(("libmimalloc.so*",), "libmimalloc2.0"),
    "tbbmalloc": _Known(("libtbbmalloc_proxy.so*",), "libtbbmalloc2"),
    "scudo": _Known(("libclang_rt.scudo_standalone*.so",), "libclang-rt-19-dev"),
    "snmalloc": _Known(("libsnmallocshim.so*",)),
}


def compared(library: Path, secure: bool, wanted: Iterable[str]) -> list[Allocator]:
    """The system's malloc, the other wanted allocators, and hakmem, each under a different name."""
    found = [allocators.system()]
    for text in wanted:
        other = _find(text)
        taken = {SYSTEM, HAKMEM, SECURE} | {entry.name for entry in found}
        if other.library in [entry.library for entry in found]:
            raise Failure(f"--with {text}: {other.library} is already in the comparison")
        found.append(replace(other, name=text) if other.name in taken else other)
    return [*found, allocators.hakmem(SECURE if secure else HAKMEM, library, str(library))]


def _find(text: str) -> Allocator:
    if "/" in text or (".so" in text and Path(text).exists()):
        return _from_file(_short(text), Path(text))
    manifest = _manifest()
    if manifest and (brought := _brought(text, manifest)):
        return brought
    problems = []
    for path in _of_system(text):
        try:
            return _from_file(_short(text), path)
        except Failure as failure:  # for example built for another processor
            problems.append(failure.message)
    raise Failure(_not_found(text, manifest, problems))


def _short(text: str) -> str:
    """libjemalloc.so.2 is jemalloc."""
    return re.sub(r"\.so[.\d]*$", "", Path(text).name).removeprefix("lib")


def _from_file(name: str, path: Path) -> Allocator:
    found = allocators.preloaded(name, name, "", str(path), path)
    if not _defines_malloc(path):
        raise Failure(f"{path} is not an allocator: it defines no malloc")
    return found


def _defines_malloc(path: Path) -> bool:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".dynsym")
            named = table.get_symbol_by_name("malloc") if table else None
            return any(symbol["st_shndx"] != "SHN_UNDEF" for symbol in named or [])
    except (OSError, ELFError) as error:
        raise Failure(f"{path} can't be read as a library: {error}") from None


def _manifest() -> Path | None:
    """The manifest of the source tree that this runs in, if any."""
    start = Path.cwd()
    places = (place / "build" / allocators.MANIFEST for place in (start, *start.parents))
    return next((place for place in places if place.is_file()), None)


def _brought(name: str, manifest: Path) -> Allocator | None:
    """The peer of that name; mimalloc means mimalloc3 if that is the first of its versions."""
    named = allocators.peers(manifest, lambda peer: peer == name)
    return next(iter(named or allocators.peers(manifest, lambda peer: peer.rstrip("0123456789") == name)), None)


def _patterns(text: str) -> tuple[str, ...]:
    if ".so" in text:
        return (text,)
    return _KNOWN[text].patterns if text in _KNOWN else (f"lib{text}.so*",)


def _of_system(text: str) -> Iterator[Path]:
    """Libraries that may be meant; those that the dynamic loader would find come first."""
    listed = _listed_by_loader()
    seen = set()
    for pattern in _patterns(text):
        there = [path for path in listed if fnmatch.fnmatchcase(path.name, pattern)]
        there += [path for folder in _FOLDERS for path in sorted(_ROOT.glob(f"{folder}/{pattern}"))]
        for path in there:
            if path.is_file() and path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def _listed_by_loader() -> list[Path]:
    program = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if not program:
        return []
    done = subprocess.run([program, "-p"], capture_output=True)
    return [Path(line.split(" => ")[1]) for line in lines_of(os.fsdecode(done.stdout)) if " => " in line]


def _not_found(text: str, manifest: Path | None, problems: list[str]) -> str:
    if problems:
        return f"no allocator {text!r} can be used: {'; '.join(problems)}"
    places = f"{manifest} and the system's libraries" if manifest else "the system's libraries"
    message = f"no allocator {text!r} in {places} ({', '.join(_patterns(text))})"
    if text not in _KNOWN:
        return f"{message}; known names are {', '.join(_KNOWN)}; or give the path of a library"
    package = _KNOWN[text].package
    return f"{message}; Debian has it in the package {package}" if package else f"{message}; `make peers` builds it"

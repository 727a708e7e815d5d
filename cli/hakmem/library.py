"""Queries the library itself, which is loaded beside this process's own malloc."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hakmem.errors import Failure
from hakmem.unnamed import unnamed_file


@contextlib.contextmanager
def _own_settings() -> Iterator[None]:
    """Hides the caller's HAKMEM_* variables, which are meant for its programs: the library loaded here would open the same files."""
    theirs = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("HAKMEM_")}
    try:
        yield
    finally:
        os.environ.update(theirs)


def _load(path: Path) -> ctypes.CDLL:
    with _own_settings():
        return ctypes.CDLL(str(path))


def options(path: Path) -> list[dict[str, Any]]:
    """The options the library at `path` knows, as it lists them."""
    try:
        library = _load(path)
    except OSError as error:
        raise Failure(f"the library {path} can't be loaded: {error}") from None
    try:
        write = library.hak_options_json
    except AttributeError:
        raise Failure(f"the library {path} does not list its options") from None
    write.argtypes = [ctypes.c_int]
    write.restype = ctypes.c_bool
    with unnamed_file("hakmem-options") as file:
        if not write(file.fileno()):
            raise Failure(f"the library {path} could not write its options")
        file.seek(0)
        return json.load(file)


def version(path: Path) -> str:
    """The version that the library at `path` reports; empty if it reports none."""
    try:
        say = _load(path).hak_version
    except (OSError, AttributeError):
        return ""
    say.restype = ctypes.c_char_p
    return say().decode()

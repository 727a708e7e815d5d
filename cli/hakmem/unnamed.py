"""Files without a name, for what the library writes to a descriptor."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing's would take long
if TYPE_CHECKING:
    from typing import BinaryIO

_CLOEXEC = 1  # MFD_CLOEXEC


def unnamed_file(name: str) -> BinaryIO:
    """A file in memory if possible, otherwise a temporary file; without a buffer. `name` shows in /proc.

    A Python that was built for a libc before 2.27 has no os.memfd_create, though the libc that it runs with may.
    """
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create(name), "r+b", buffering=0)
    import ctypes
    import tempfile

    create = getattr(ctypes.CDLL(None), "memfd_create", None)
    file = create(name.encode(), _CLOEXEC) if create is not None else -1
    return open(file, "r+b", buffering=0) if file >= 0 else tempfile.TemporaryFile(buffering=0)

"""Recognizes files that a command might be given but does not read, and says which program reads them."""

from __future__ import annotations

import zlib

_GZIP = b"\x1f\x8b"
# How compressed files begin; systemd-coredump stores cores in such formats.
_COMPRESSED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4", b"\xfd7zXZ\0": "xz", _GZIP: "gzip"}
_OF_GZIP = 31  # zlib's number for the format


def _is_pprof(start: bytes) -> bool:
    """Whether the first field is a sample type that starts with a number. Text with these bytes would have a line feed and a backspace."""
    if start.startswith(_GZIP):
        try:
            start = zlib.decompressobj(_OF_GZIP).decompress(start, 3)
        except zlib.error:
            return False
    return len(start) >= 3 and start[0] == 0x0A and start[2] == 0x08


def what_is(start: bytes) -> str:
    """What a file with this beginning is; empty if unknown."""
    if _is_pprof(start):
        return "a pprof profile, which hakmem diff and go tool pprof read"
    program = next((program for magic, program in _COMPRESSED.items() if start.startswith(magic)), None)
    return f"compressed; decompress first with {program} -d" if program else ""

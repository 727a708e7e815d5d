"""Files that look like what a command reads and are not: what they are, and who reads them."""

from __future__ import annotations

import zlib

_GZIP = b"\x1f\x8b"
# As systemd-coredump keeps cores: how the files begin.
_COMPRESSED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4", b"\xfd7zXZ\0": "xz", _GZIP: "gzip"}
_OF_GZIP = 31  # as zlib has it


def _is_pprof(start: bytes) -> bool:
    """Its first field is a type of samples, and the first one of that a number. A text would have a line feed, and a backspace soon."""
    if start.startswith(_GZIP):
        try:
            start = zlib.decompressobj(_OF_GZIP).decompress(start, 3)
        except zlib.error:
            return False
    return len(start) >= 3 and start[0] == 0x0A and start[2] == 0x08


def what_is(start: bytes) -> str:
    """Of a file that begins so; empty where it is nothing that is known."""
    if _is_pprof(start):
        return "a profile of pprof, which hakmem diff reads, and go tool pprof"
    program = next((program for magic, program in _COMPRESSED.items() if start.startswith(magic)), None)
    return f"compressed; decompress first with {program} -d" if program else ""

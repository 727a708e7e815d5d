"""Names of processes and files as the kernel stores them: bytes that need not be text and may contain anything but a zero.

Anybody can give such names, and some commands read everybody's processes.
"""

from __future__ import annotations

import os
from pathlib import Path

_UNDECODED = range(0xDC80, 0xDD00)  # what os.fsdecode() makes of bytes that are not UTF-8


def lines_of(text: str) -> list[str]:
    """Splits at line feeds only: a name may contain the other characters that str.splitlines() splits at."""
    return text.removesuffix("\n").split("\n") if text else []


def kernel_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a file in /proc or /sys, whatever they contain."""
    return lines_of(os.fsdecode(Path(path).read_bytes()))


def printable(text: str) -> str:
    """The text in a form that can be shown anywhere: bytes that are not text, and terminal controls, become Python's escapes."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number - 0xDC00:02x}" if number in _UNDECODED else letter.encode("unicode_escape").decode()


def of_process(process: int) -> str:
    """The name of the process; raises OSError if it no longer exists."""
    return printable("\n".join(kernel_lines(f"/proc/{process}/comm")))

"""Names of processes and files, as the kernel has them: bytes that need be no text, with anything in them but an end.

Anybody can give such names, and some commands look at everybody's processes.
"""

from __future__ import annotations

import os
from pathlib import Path

_UNDECODED = range(0xDC80, 0xDD00)  # what os.fsdecode() makes of bytes that are no UTF-8


def lines_of(text: str) -> list[str]:
    """A line feed ends a line, and nothing else that str.splitlines() takes for an end, which a name may have within it."""
    return text.removesuffix("\n").split("\n") if text else []


def kernel_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a file of /proc or /sys, whatever they have in them."""
    return lines_of(os.fsdecode(Path(path).read_bytes()))


def printable(text: str) -> str:
    """As it can be shown anywhere: what is no text, or would do something to a terminal, as the escape that Python has for it."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number - 0xDC00:02x}" if number in _UNDECODED else letter.encode("unicode_escape").decode()


def of_process(process: int) -> str:
    """What the process is called; OSError where there is none any more."""
    return printable("\n".join(kernel_lines(f"/proc/{process}/comm")))

"""Names of signals."""

from __future__ import annotations

import signal

_AFTER_LEAST = 15  # this many real-time signals are named from SIGRTMIN, the others from SIGRTMAX


def name_of(number: int) -> str:
    """The name as a shell prints it: only two real-time signals have names, from which the others are counted."""
    least, greatest = signal.SIGRTMIN, signal.SIGRTMAX
    if least < number <= least + _AFTER_LEAST:
        return f"{least.name}+{number - least}"
    if least < number < greatest:
        return f"{greatest.name}-{greatest - number}"
    try:
        return signal.Signals(number).name
    except ValueError:  # the C library reserves some
        return f"signal {number}"

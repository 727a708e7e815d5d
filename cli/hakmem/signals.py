"""What signals are called."""

from __future__ import annotations

import signal

_AFTER_LEAST = 15  # so many real-time signals are counted from the least one on, the others from the greatest


def name_of(number: int) -> str:
    """As a shell says it: real-time signals have two names alone, and each program counts on from these."""
    least, greatest = signal.SIGRTMIN, signal.SIGRTMAX
    if least < number <= least + _AFTER_LEAST:
        return f"{least.name}+{number - least}"
    if least < number < greatest:
        return f"{greatest.name}-{greatest - number}"
    try:
        return signal.Signals(number).name
    except ValueError:  # the C library keeps some for itself
        return f"signal {number}"

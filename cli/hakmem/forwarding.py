"""Signals that this process is sent are for the command that it runs."""

from __future__ import annotations

import os
import signal
import subprocess


def _in_foreground() -> bool:
    """True where the terminal sends its signals to the command too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class Forwarding:
    """While in force, the signals sent to this process go on to the command under way."""

    SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)

    def __init__(self) -> None:
        self.received = False
        self.process: subprocess.Popen | None = None
        self._early: list[int] = []  # came while a command was being started
        self._old: dict[int, object] = {}

    def __enter__(self) -> Forwarding:
        for number in self.SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def started(self, process: subprocess.Popen) -> None:
        self.process = process
        while self._early:
            process.send_signal(self._early.pop(0))

    def _handle(self, number: int, _frame: object) -> None:
        self.received = True
        if number in self.FROM_TERMINAL and _in_foreground():
            return
        if self.process:
            self.process.send_signal(number)
        else:
            self._early.append(number)

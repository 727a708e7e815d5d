"""Forwards the signals that this process receives to the command that it runs."""

from __future__ import annotations

import os
import signal
import subprocess

_KEPT = frozenset(
    {signal.SIGKILL, signal.SIGSTOP}  # can't be caught
    | {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}  # its own faults
    | {signal.SIGPIPE, signal.SIGXFSZ}  # from its own writes
    | {signal.SIGCHLD}  # the command's
    | {signal.SIGTTIN, signal.SIGTTOU}  # from the terminal, to a whole background group: they stop both
)
_ASK_FOR_NO_END = (signal.SIGCONT, signal.SIGTSTP, signal.SIGURG, signal.SIGWINCH)


def _in_foreground(command: int) -> bool:
    """True if the terminal sends its signals to the command too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp() == os.getpgid(command)
    except OSError:
        return False
    finally:
        os.close(terminal)


class Forwarding:
    """While active, forwards the signals sent to this process to the running command.

    The command gets a terminal's signals itself if it is in the same group. A shell that continues a job also signals the whole group, but
    SIGCONT twice has the effect of one. Another sender may mean this process alone, so SIGCONT is forwarded in any case.
    """

    SIGNALS = tuple(sorted(signal.valid_signals() - _KEPT))
    FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)

    def __init__(self) -> None:
        self.received = False  # a signal that asks for an end, or may
        self.process: subprocess.Popen | None = None
        self._early: list[int] = []  # signals that came while a command was being started, or this process was stopped
        self._old: dict[int, object] = {}

    def __enter__(self) -> Forwarding:
        for number in self.SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: set by a library that is preloaded here
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
        self.received = self.received or number not in _ASK_FOR_NO_END
        if not self.process:
            self._early.append(number)
        elif not (number in self.FROM_TERMINAL and _in_foreground(self.process.pid)):
            self.process.send_signal(number)
        if number == signal.SIGTSTP:
            self._stop()

    def _stop(self) -> None:
        """Stops this process, as the sender expects: a shell waits for that, and later continues this process with the command, or alone.
        Signals that come meanwhile are forwarded once the handler is back, since a sender that sees their effect may stop this again."""
        process, self.process = self.process, None
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._handle)
        if process:
            self.started(process)

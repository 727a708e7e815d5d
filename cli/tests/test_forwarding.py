"""hakmem run where it waits for the program: what it is sent is the program's, once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import HAKMEM, plain_environment

from hakmem import forwarding

END = 3
COMPARED = ("--compare", "--show-output")
# It takes the signals one after the other, so that none is lost between two of them.
PROGRAM = f"""
import os, signal, sys
if sys.argv[1:] == ["apart"]:
    os.setpgid(0, 0)
taken = signal.valid_signals()
signal.pthread_sigmask(signal.SIG_BLOCK, taken)
print("up", flush=True)
while (number := signal.sigwait(taken)) != signal.SIGTERM:
    print(number, flush=True)
sys.exit({END})
"""
SENT = ["HUP", "INT", "QUIT", "ABRT", "USR1", "USR2", "ALRM", "CONT", "URG", "XCPU", "VTALRM", "PROF", "WINCH", "IO", "PWR"]
SENT = [getattr(signal, f"SIG{name}") for name in SENT] + [signal.SIGRTMIN, signal.SIGRTMIN + 3, signal.SIGRTMAX]


@pytest.fixture(autouse=True)
def hang_is_a_failure():
    """A signal that is lost is waited for without end."""

    def fail(_number: int, _frame: object) -> None:
        raise TimeoutError("a signal was lost")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(200)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def program_of(process: subprocess.Popen) -> int:
    """The last of its descendants: of a comparison the launcher is between."""
    number = process.pid
    while children := Path(f"/proc/{number}/task/{number}/children").read_text().split():
        number = int(children[0])
    return number


@contextmanager
def running(
    *options: str, words: tuple[str, ...] = (), stdin: int = subprocess.DEVNULL, set_up: Callable[[], None] = os.setsid
) -> Iterator[subprocess.Popen]:
    """It, from the program's first word on."""

    def begin() -> None:
        for number in forwarding.Forwarding.SIGNALS:  # a background job of a shell is born with some ignored
            signal.signal(number, signal.SIG_DFL)
        set_up()

    command = [HAKMEM, "run", *options, "--", sys.executable, "-c", PROGRAM, *words]
    streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen(command, env=plain_environment(), preexec_fn=begin, **streams) as process:
        program = None
        try:
            assert told(process) == "up"
            program = program_of(process)
            yield process
        finally:
            if process.returncode is None or process.returncode < 0:
                for number in filter(None, (program, process.pid)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(number, signal.SIGKILL)


def told(process: subprocess.Popen) -> str:
    """The program's next line, unless it was left alone."""
    while not select.select([process.stdout], [], [], 0.1)[0]:
        assert process.poll() is None
    return process.stdout.readline().decode().strip()


def end(process: subprocess.Popen) -> str:
    """What it says on standard error."""
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == END
    return errors.decode()


@pytest.mark.parametrize("mode", [("--leaks",), ("--stats",), COMPARED], ids=" ".join)
def test_what_is_sent_reaches_the_program_and_it_is_waited_for(mode):
    with running(*mode) as process:
        for number in SENT:
            process.send_signal(number)
            assert told(process) == str(int(number))
        assert "Traceback" not in end(process)


def test_what_asks_for_no_end_does_not_end_a_comparison():
    with running(*COMPARED) as process:
        for number in (signal.SIGWINCH, signal.SIGCONT, signal.SIGURG):
            process.send_signal(number)
            assert told(process) == str(int(number))
        os.kill(program_of(process), signal.SIGTERM)
        assert told(process) == "up"  # the next run's
        end(process)


def test_it_stops_and_goes_on_with_the_program():
    def apart() -> None:  # a group of its own, but not without anybody to continue it
        os.setpgid(0, 0)

    with running("--leaks", set_up=apart) as process:
        for _ in range(100):
            process.send_signal(signal.SIGTSTP)
            assert told(process) == str(int(signal.SIGTSTP))
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTSTP
            process.send_signal(signal.SIGCONT)
            assert told(process) == str(int(signal.SIGCONT))
        end(process)


# ---- With a terminal ----


@contextmanager
def on_a_terminal(*options: str, words: tuple[str, ...] = ()) -> Iterator[tuple[subprocess.Popen, int]]:
    """In its foreground; with the terminal's other side."""
    ours, theirs = pty.openpty()

    def take() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    try:
        with running(*options, words=words, stdin=theirs, set_up=take) as process:
            yield process, ours
            end(process)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("mode", [("--leaks",), COMPARED], ids=" ".join)
def test_what_a_terminal_sends_to_both_comes_once(mode):
    with on_a_terminal(*mode) as (process, terminal):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, bytes([40, 0, 80, 0, 0, 0, 0, 0]))
        assert told(process) == str(int(signal.SIGWINCH))
        for key, number in ((b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)):
            os.write(terminal, key)
            assert told(process) == str(int(number))
        process.send_signal(signal.SIGRTMIN)  # what has come before goes on before
        assert told(process) == str(int(signal.SIGRTMIN))


def test_what_a_terminal_sends_goes_on_to_a_program_in_another_group():
    with on_a_terminal("--leaks", words=("apart",)) as (process, terminal):
        os.write(terminal, b"\x03")
        assert told(process) == str(int(signal.SIGINT))

"""Processes that may not be read: the commands say why, and what can be done."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from conftest import HAKMEM, plain_environment

# Of the commands' modules all that they load later: as another user it may not be found.
from hakmem import (  # noqa: F401
    app,
    insight_commands,
    inspection,
    memory,
    metrics,
    outside,
    profile,
    resident,
    snapshot,
    symbols,
    top,
    window,
)
from hakmem.errors import Failure

NOBODY = 65534
PR_SET_DUMPABLE = 4


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """What this process does meanwhile it does as a user, who may not do everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def child(dumpable: int) -> Iterator[int]:
    """A process of the same user as `as_nobody`."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            if os.geteuid() == 0:
                os.setresuid(NOBODY, NOBODY, NOBODY)
            if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0) == 0:
                os.write(writer, b"!")
                signal.pause()
        os._exit(1)
    try:
        assert os.read(reader, 1) == b"!"
        yield pid
    finally:
        os.close(reader)
        os.close(writer)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def refusal(process: int) -> str:
    with as_nobody(), pytest.raises(Failure) as failed:
        memory.Process(process)
    return failed.value.message


def test_one_that_has_closed_itself():
    with child(dumpable=0) as pid:
        said = refusal(pid)
        assert f"process {pid}: may not be read" in said and "PR_SET_DUMPABLE" in said and "Yama" not in said
        assert "CAP_SYS_PTRACE" in said and "HAKMEM_PROFILE" in said and "hakmem run --profile" in said
        assert "HAKMEM_WINDOW" not in said  # what it has open nobody may see either
    with child(dumpable=1) as pid, as_nobody():
        memory.Process(pid).close()


def test_another_users():
    if os.geteuid() != 0 and os.stat("/proc/1").st_uid == os.geteuid():
        pytest.skip("there is no other user's process")
    said = refusal(os.getpid() if os.geteuid() == 0 else 1)
    assert "it belongs to another user" in said and "CAP_SYS_PTRACE" in said and "HAKMEM_PROFILE" in said


@pytest.mark.parametrize(
    ("scope", "told", "not_told"),
    [
        (1, ["whoever started it", "sysctl kernel.yama.ptrace_scope=0", "PR_SET_PTRACER", "CAP_SYS_PTRACE"], []),
        (2, ["only root", "sysctl kernel.yama.ptrace_scope=0", "CAP_SYS_PTRACE"], ["PR_SET_PTRACER"]),
        (3, ["nobody until the next boot"], ["sysctl", "PR_SET_PTRACER", "CAP_SYS_PTRACE"]),
        (0, ["privileges that this command lacks", "CAP_SYS_PTRACE"], ["Yama", "sysctl"]),
    ],
)
def test_yama(scope, told, not_told, monkeypatch):
    """Not every kernel has it: what refuses is imitated."""
    monkeypatch.setattr(memory, "yama_scope", lambda: scope)
    with child(dumpable=1) as pid, as_nobody(), monkeypatch.context() as patched:
        patched.setattr(memory.os, "open", refuse)
        with pytest.raises(memory.Refused) as failed:
            memory.Process(pid)
    said = failed.value.message
    assert all(text in said for text in [*told, "HAKMEM_PROFILE", "hakmem run --profile", "HAKMEM_WINDOW=1"])
    assert not any(text in said for text in not_told)
    assert failed.value.why in said and "Ways out" not in failed.value.why


def test_no_window_is_advised_where_it_could_not_be_seen(monkeypatch):
    """As in another user namespace."""
    with child(dumpable=1) as pid, as_nobody(), monkeypatch.context() as patched:
        patched.setattr(memory.os, "open", refuse)
        patched.setattr(memory.os, "listdir", refuse)
        with pytest.raises(memory.Refused) as failed:
            memory.Process(pid)
    assert "another namespace" in failed.value.message and "HAKMEM_WINDOW" not in failed.value.message


def test_no_window_is_advised_to_who_has_fewer_rights():
    """Who may see the names of what is open, and not follow them."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can give rights up")
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", str(HAKMEM), "resident", str(os.getpid())]
    result = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
    assert result.returncode == 1 and "privileges that this command lacks" in result.stderr, result.stderr
    assert "HAKMEM_WINDOW" not in result.stderr and "HAKMEM_PROFILE" in result.stderr


def refuse(*_words) -> int:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("words", [["profile"], ["resident"], ["inspect", "0x10"]])
def test_each_command_says_so(words):
    with child(dumpable=0) as pid, as_nobody():
        done = CliRunner().invoke(app.main, [words[0], str(pid), *words[1:]])
    assert done.exit_code == 1
    assert "may not be read" in done.output and "Ways out" in done.output


def test_views_of_several_say_so():
    with child(dumpable=0) as pid, as_nobody():
        with pytest.raises(Failure) as failed:
            top.watch(pid, 1)
        text = metrics.text_of(metrics.registry_of((pid,), os.geteuid(), 0))
        found = top.look(pid)
    assert "Ways out" in failed.value.message
    assert "may not be read" in found.problem and "Ways out" not in found.problem  # a line in a table
    assert re.search(rf'^hakmem_readable{{.*pid="{pid}".*}} 0.0$', text, re.M)


@pytest.mark.parametrize("words", [["profile", "1"], ["resident", "1"], ["inspect", "1", "0x10"], ["top"], ["metrics"], ["metrics", "1"]])
def test_where_there_is_no_proc_no_process_is_told_to_be_missing(words):
    apart = ["unshare", "-m", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none /proc || exit 1; exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("may not mount anything")
    done = subprocess.run([*apart, HAKMEM, *words], env=plain_environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "hakmem: /proc is not mounted here: processes can't be seen without it\n"

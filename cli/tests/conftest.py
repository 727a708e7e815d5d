"""The tests run the installed command as a user does: in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HAKMEM = str(Path(sys.executable).parent / "hakmem")


def plain_environment() -> dict[str, str]:
    """This process's environment without what changes the outcome."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "LD_PRELOAD" and not name.startswith("HAKMEM_") and name not in ("COLUMNS", "FORCE_COLOR")
    }


@pytest.fixture
def environment() -> dict[str, str]:
    return plain_environment()


@pytest.fixture
def bench_script(monkeypatch):
    """Loads a program of bench/ as a module."""

    def load(path: str):
        spec = importlib.util.spec_from_file_location(f"bench_{Path(path).stem}", Path(__file__).parents[2] / "bench" / path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)  # where its dataclasses look for it
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def hakmem():
    """Runs `hakmem ARGUMENTS` to its end."""

    def run(*arguments: str, input: str | None = None, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [HAKMEM, *arguments],
            env=plain_environment() | variables,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture
def start(environment):
    """Starts `hakmem ARGUMENTS`, with VARIABLES, and leaves it running, its output in a pipe; ended after the test."""
    started: list[subprocess.Popen] = []

    def popen(*arguments: str, **variables: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [HAKMEM, *arguments],
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A background job of a shell is born with it ignored, and so would be what it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield popen
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with whatever it has started
        process.communicate()

"""Runs a workload once under an allocator, and reports what it cost or why it failed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from hakmem import preload
from hakmem.bench import figures
from hakmem.bench.allocators import Allocator
from hakmem.bench.memory import Watch
from hakmem.bench.plan import Plan
from hakmem.bench.workloads import SYNTHETIC, Workload, expand
from hakmem.errors import Failure
from hakmem.runs import Launch, Run

_PREPARE_TIMEOUT = 1800  # it may compile the program or generate the data of all runs
_STRACE_TIMEOUT = 60  # an allocator that makes a call for each operation gets no count, rather than minutes
_READY_INTERVAL = 0.02
_TAIL_BYTES = 2000


# Observes a process, given its id, while it works.
Observer = Callable[[int], contextlib.AbstractContextManager[None]]


class RunFailed(Exception):
    """Why a run does not count: its exit code, signal or timeout."""


@dataclass(frozen=True)
class _Started:
    """A command that runs in a session of its own."""

    launch: Launch
    errors: BinaryIO
    output: BinaryIO
    name: str

    def wait(self, timeout: float) -> Run:
        try:
            run = self.launch.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"{self.name}timeout after {timeout:g} s") from None
        except Failure as failure:
            raise RunFailed(failure.message) from None
        return replace(run, errors=self._tail())

    def _tail(self) -> str:
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - _TAIL_BYTES))
        return self.errors.read().decode(errors="replace").strip()

    def _lines(self) -> list[str]:
        self.output.seek(0)
        return self.output.read().decode(errors="replace").splitlines()

    def operations(self) -> dict:
        count = figures.operations(self._lines())
        return {} if count is None else {"operations": count}

    def figures(self) -> list[dict]:
        """The figures that the command has printed; raises RunFailed if there are none, or one is malformed."""
        try:
            found = figures.parse(self._lines())
        except ValueError as error:
            raise RunFailed(str(error)) from None
        if not found:
            raise RunFailed("it printed no figures")
        return [asdict(figure) for figure in found]

    def check(self, run: Run, accepted: tuple[str, ...] = ("exit 0",)) -> Run:
        if run.outcome not in accepted:
            raise RunFailed(f"{self.name}{run.outcome}" + (f": {run.errors}" if run.errors else ""))
        return run


def strace_problem() -> str:
    """Why system calls can't be counted here; empty if they can."""
    if not shutil.which("strace"):
        return "there is no strace"
    done = subprocess.run(["strace", "-f", "-c", "-o", "/dev/null", "true"], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"strace can't trace: {done.stderr.strip()}"


def _free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


class Runner:
    def __init__(self, plan: Plan) -> None:
        self._size = plan.choices.size
        self._timeout = plan.choices.timeout
        self._values = plan.places.values(self._size)
        self._environment = {
            name: value for name, value in preload.caller_environment().items() if name != "LD_PRELOAD"
        }
        self._stopped = False
        self._running: list[subprocess.Popen] = []

    def stop(self) -> None:
        """Ends the current run, from a signal handler; the caller that waits for it gets KeyboardInterrupt.

        The handler itself must not raise: that might happen while subprocess holds its lock, and the next wait
        would never end.
        """
        self._stopped = True
        for process in self._running:
            self._kill(process)

    @contextlib.contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Inside, SIGTERM stops the run as ctrl-C does, with KeyboardInterrupt: no process is left."""
        heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
        old = {number: signal.signal(number, lambda *_: self.stop()) for number in heard}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
        if self._stopped:  # if nothing was running
            raise KeyboardInterrupt

    # ---- What all runs share ----

    @staticmethod
    def _kill(process: subprocess.Popen) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    @staticmethod
    def _output(workload: Workload) -> BinaryIO:
        """Where output goes: kept only if something is read from it, since other programs may print much."""
        kept = workload.figures or workload.group == SYNTHETIC
        return tempfile.TemporaryFile() if kept else open(os.devnull, "w+b")

    @contextlib.contextmanager
    def _started(
        self, command: list[str], workload: Workload, values: dict[str, str], added: list[str], name: str = ""
    ) -> Iterator[_Started]:
        """Starts the command; on exit, ends its whole session if it has not ended."""
        variables = dict(zip(workload.env, expand(workload.env.values(), values)))
        with tempfile.TemporaryFile() as errors, self._output(workload) as output:
            launch = Launch(
                expand(command, values),
                self._environment | variables,
                added,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=self._values["scratch"],
                start_new_session=True,
            )
            self._running.append(launch.process)
            try:
                if self._stopped:  # before stop() could see it
                    raise KeyboardInterrupt
                yield _Started(launch, errors, output, name)
            finally:
                self._running.remove(launch.process)
                self._kill(launch.process)
                launch.process.wait()
                if self._stopped:
                    raise KeyboardInterrupt

    def _fresh_values(self, workload: Workload) -> dict[str, str]:
        """Empties the scratch directory, and returns the values of the names in the next run's commands."""
        scratch = Path(self._values["scratch"])
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        Path(self._values["data"]).mkdir(parents=True, exist_ok=True)
        return self._values | workload.sizes(self._size) | {"port": _free_port()}

    def _wait_ready(self, server: _Started, workload: Workload, values: dict[str, str], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        ready = expand(workload.server.ready, values)
        while server.launch.process.poll() is None:
            if time.monotonic() > deadline:
                raise RunFailed(f"server: not ready after {timeout:g} s")
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                done = subprocess.run(
                    ready,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=timeout,
                    env=self._environment,
                    cwd=self._values["scratch"],
                )
                if done.returncode == 0:
                    return
            time.sleep(_READY_INTERVAL)
        run = server.wait(timeout)
        raise RunFailed(f"server: {run.outcome} before it was ready: {run.errors}")

    def _serve(
        self,
        workload: Workload,
        values: dict[str, str],
        prefix: list[str],
        added: list[str],
        timeout: float,
        observe: Observer,
    ) -> Run:
        """Returns the client's time, and all other figures of the server."""
        with self._started([*prefix, *workload.server.command], workload, values, added, "server: ") as server:
            self._wait_ready(server, workload, values, timeout)
            with (
                observe(server.launch.process.pid),
                self._started(workload.command, workload, values, [], "client: ") as client,
            ):
                seconds = client.check(client.wait(timeout)).seconds
            if prefix:  # a tracer does not pass signals on
                os.killpg(server.launch.process.pid, signal.SIGTERM)
            else:
                server.launch.process.terminate()
            run = server.check(server.wait(timeout), ("exit 0", "died of SIGTERM"))
            return replace(run, seconds=seconds)

    def _run(
        self,
        workload: Workload,
        prefix: list[str],
        added: list[str],
        timeout: float,
        observe: Observer = contextlib.nullcontext,
    ) -> tuple[Run, dict]:
        """What the run cost, and what the workload reports itself: its operations and its figures."""
        values = self._fresh_values(workload)
        if workload.server:
            return self._serve(workload, values, prefix, added, timeout, observe), {}
        with self._started([*prefix, *workload.command], workload, values, added) as command:
            with observe(command.launch.process.pid):
                run = command.check(command.wait(timeout))
            return run, command.operations() | ({"figures": command.figures()} if workload.figures else {})

    # ---- The kinds of runs ----

    def prepare(self, workload: Workload) -> None:
        """Makes what the workload reads; raises RunFailed if it can't run here at all."""
        values = self._fresh_values(workload)
        if workload.prepare:  # first, since this may build the program
            with self._started(workload.prepare, workload, values, [], "prepare: ") as command:
                command.check(command.wait(_PREPARE_TIMEOUT))
        command = workload.server.command if workload.server else workload.command
        program = shutil.which(expand(command, values)[0])
        if not program:
            raise RunFailed(f"{expand(command, values)[0]}: not found")
        reason = preload.why_unreachable(Path(program))
        if reason:
            raise RunFailed(f"{program}: it can't be run under another allocator: {reason}")

    def measure(self, workload: Workload, allocator: Allocator) -> dict:
        run, own = self._run(workload, [], allocator.added, self._timeout)
        if "ld.so: object" in run.errors:
            raise RunFailed(run.errors)
        return {
            "seconds": run.seconds,
            "cpu_seconds": run.cpu_seconds,
            "user_seconds": run.user_seconds,
            "system_seconds": run.system_seconds,
            "peak_rss_kib": run.peak_rss_kib,
            "minor_faults": run.minor_faults,
            "major_faults": run.major_faults,
        } | own

    def watch_memory(self, workload: Workload, allocator: Allocator) -> dict:
        watch = Watch(outlived=workload.server is not None)
        self.look(workload, allocator, watch.over)
        return watch.summary()

    def look(self, workload: Workload, allocator: Allocator, observe: Observer) -> None:
        """A run for the observer, which is not timed."""
        self._run(workload, [], allocator.added, self._timeout, observe)

    def count_calls(self, workload: Workload, allocator: Allocator) -> dict:
        with tempfile.NamedTemporaryFile("r") as report:
            added = [word for variable in allocator.added for word in ("-E", variable)]
            prefix = ["strace", "-f", "-c", "-U", "calls,name", "-o", report.name, *added]
            self._run(workload, prefix, [], min(self._timeout, _STRACE_TIMEOUT))
            rows = [line.split() for line in report]
        return {"system_calls": sum(int(row[0]) for row in rows if row and row[0].isdigit() and row[-1] != "total")}

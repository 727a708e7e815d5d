#!/usr/bin/env python3
"""Debian's redis-server, which is linked to libjemalloc.so.2, runs on the library in its place and reports plausible figures.

It refuses active defragmentation, since Debian builds it without the extension of redis's own jemalloc.  jemalloc.c tests that the
nodes which redis and valkey use report the truth, and that moving blocks by them gives memory back.
"""
import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import time

SERVER, CLIENT = "/usr/bin/redis-server", "/usr/bin/redis-cli"
VALUE = 300
KEYS = 60000


class Redis:
    def __init__(self, socket):
        self.socket = socket

    def ask(self, *words, stdin=None):
        command = [CLIENT, "-s", self.socket, *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60, input=stdin).stdout

    def figures(self):
        """MEMORY STATS by name; redis-cli prints names and values alternately.  The server reads the library's figures every 100 ms."""
        time.sleep(0.5)
        lines = self.ask("memory", "stats").splitlines()
        return {name: float(value) for name, value in zip(lines, lines[1:]) if re.fullmatch(r"[\d.]+", value) and "." in name}


@contextlib.contextmanager
def server(library, folder):
    socket = folder / "redis.sock"
    environment = os.environ | {"LD_LIBRARY_PATH": str(library.parent)}
    environment.pop("LD_PRELOAD", None)
    command = [SERVER, "--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", "--appendonly", "no"]
    with open(folder / "log", "w", encoding="utf-8") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        try:
            for _ in range(1200):  # a minute, which only a hang exceeds
                if socket.exists():
                    break
                time.sleep(0.05)
            yield process.pid, Redis(socket)
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            finally:
                process.kill()  # otherwise the end of the block waits for a process that hangs


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def check_figures(figures, pid, least):
    allocated, active, held = (figures[f"allocator.{name}"] for name in ("allocated", "active", "resident"))
    assert least < allocated <= active <= held, figures
    assert abs(figures["allocator-fragmentation.ratio"] - active / allocated) < 0.01, figures
    # Besides the heap, the server holds its code and libraries, some 10 MB.
    assert held * 0.8 - (4 << 20) < resident(pid) < held + (32 << 20), (figures, resident(pid))


def load(redis):
    commands = "".join(f"SET key:{i} {'v' * VALUE}\n" for i in range(KEYS))
    assert f"errors: 0, replies: {KEYS}" in redis.ask("--pipe", stdin=commands)


def thin_out(redis):
    commands = "".join(f"DEL key:{i}\n" for i in range(KEYS) if i % 8)
    assert "errors: 0" in redis.ask("--pipe", stdin=commands)


def run(library, folder):
    with server(library, folder) as (pid, redis):
        assert redis.ask("ping") == "PONG\n"
        assert str(library) in pathlib.Path(f"/proc/{pid}/maps").read_text(), "the server runs on another library"
        empty = redis.figures()
        load(redis)
        full = redis.figures()
        check_figures(full, pid, KEYS * VALUE)
        grown = full["allocator.allocated"] - empty["allocator.allocated"]
        assert KEYS * VALUE < grown < KEYS * VALUE * 2, (empty, full)
        assert full["allocator-fragmentation.ratio"] < 1.3, full
        thin_out(redis)
        thin = redis.figures()
        check_figures(thin, pid, KEYS * VALUE / 8)
        assert thin["allocator-fragmentation.ratio"] > 2, thin  # one block in eight keeps its slab
        assert redis.ask("flushall") == "OK\n"
        assert redis.ask("memory", "purge") == "OK\n"
        before = resident(pid)
        purged = redis.figures()
        check_figures(purged, pid, 0)
        assert purged["allocator.allocated"] < grown / 4 and before < full["allocator.resident"], (purged, before)
        assert "hakmem statistics" in redis.ask("memory", "malloc-stats")
        assert redis.ask("memory", "doctor")
        assert "mem_allocator:jemalloc-5.3" in redis.ask("info", "memory")
        answer = redis.ask("config", "set", "activedefrag", "yes")
        assert answer == "OK\n" or "Active defragmentation cannot be enabled" in answer, answer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", type=pathlib.Path, required=True)
    library = parser.parse_args().lib.resolve()
    if not pathlib.Path(SERVER).exists():
        print("skipped: redis-server is not there; tools/setup programs installs it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        run(library, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""bench/resident: when a process that is stopped to be read has come to rest, and what is left when it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import compiled, ends


@pytest.fixture
def resident(bench_script):
    return bench_script("resident/resident.py")


def test_a_process_that_has_ended_is_not_waited_for(resident):
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError):
        resident.stopped(process.pid)
    process.wait()
    with pytest.raises(ProcessLookupError):
        resident.stopped(process.pid)


WITHOUT_MAIN = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *run(void *main_thread) {
  pthread_join(*(pthread_t *)main_thread, NULL);
  puts("ready");
  fflush(stdout);
  pause();
  return NULL;
}
int main(void) {
  static pthread_t self, other;
  self = pthread_self();
  pthread_create(&other, NULL, run, &self);
  pthread_exit(NULL);
}
"""


def test_a_process_whose_first_thread_has_ended_is_stopped_with_the_others(resident, tmp_path):
    (tmp_path / "program.c").write_text(WITHOUT_MAIN)
    with subprocess.Popen([compiled(tmp_path, tmp_path / "program.c")], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            assert not resident.stopped(process.pid)
            process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 10
            while not resident.stopped(process.pid) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert resident.stopped(process.pid)
        finally:
            process.kill()


# With a workload of the test's own in place of the benchmark's.
SLEEPS = """
import runpy, sys
from pathlib import Path
from hakmem.bench import plan
from hakmem.bench.allocators import Allocator
from hakmem.bench.workloads import Workload

file, folder = sys.argv[1:]
sleeps = Workload("sleeps", "program", "sleeps", "", ["sh", "-c", f"echo $$ >{folder}/new; mv {folder}/new {folder}/pid; exec sleep 600"], {}, {})
choices = plan.Choices([], [], [], 1, True, 600, 1, "", None, [])
made = plan.Plan(choices, plan.Places(Path(folder), Path(folder), Path(folder)), [sleeps], [Allocator("system", "", "", "", None)], [])
plan.make = lambda *_: made
sys.argv = [file]
runpy.run_path(file, run_name="__main__")
"""


def test_no_process_is_left_when_it_is_ended(tmp_path):
    file = Path(__file__).parents[2] / "bench" / "resident" / "resident.py"
    with subprocess.Popen([sys.executable, "-c", SLEEPS, file, tmp_path], stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.terminate()
    assert ends((tmp_path / "pid").read_text())
    assert process.returncode == 130

#!/usr/bin/env python3
"""Programs under system call filters that are installed after start: they survive as they do on the system's malloc.

Scenes:
  one_call   each call that hakmem's code makes is refused alone, in each way, and the shadow model runs
  past_libc  the same, with the filter installed by an instruction that no library sees
  all_calls  all calls that glibc's malloc does not make are refused together, and the API's checks run
  sandbox    a list like OpenSSH's of permitted calls, for the whole program: the shadow model runs with one thread, and each check
             of the API passes that passes so on the system's malloc

A call is refused by ending the process (kill), by a signal whose handler makes the call return ENOSYS (trap), or by an error.  Each
scene first refuses an indispensable call and expects the process to end; otherwise a filter without effect would pass.
"""
import argparse
import itertools
import os
import signal
import subprocess
import sys

# glibc's malloc needs these too, so it could not survive a filter that kills for them either.
MEMORY = ["munmap", "mprotect", "madvise", "mremap"]
OTHERS = ["mincore", "openat", "read", "close", "clone", "nanosleep", "sched_yield", "rt_sigprocmask", "rt_sigaction", "getrandom",
          "rt_sigpending", "rt_sigtimedwait", "tgkill", "waitid", "getpid", "gettid", "prctl", "capget", "capset", "prlimit64", "seccomp",
          "clock_gettime"]
ERRORS = ["EPERM", "ENOSYS", "EACCES"]
WAYS = ["kill", "trap", *ERRORS]

# The shadow model runs in a thread, and reads its resident memory.
MODEL = "clone3,set_robust_list,rseq,rt_sigaction,openat"

# hakmem cannot see a filter being installed past libc: it makes these calls once more, and learns of it by reading a file.
PAST_LIBC_ASKED = {("kill", call) for call in ("openat", "read", "close", "mincore")}
# The secure library seals its memory, and refuses to grow without mprotect; it needs madvise for memory that must be zero.
SECURE_NEEDS = {"mprotect", "madvise"}


class Runner:
    def __init__(self, options):
        self.options = options
        self.runs = 0
        self.problems = []

    def libraries(self):
        return [path for path in (self.options.library, self.options.secure) if path]

    def run(self, library, filter_text, *command, **more):
        preload = ":".join(path for path in (self.options.refuse, library) if path)
        environment = {**os.environ, **more, "LD_PRELOAD": preload, "REFUSE": filter_text}
        self.runs += 1
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)

    def expect_life(self, library, filter_text, *command, **more):
        done = self.run(library, filter_text, *command, **more)
        if done.returncode == 0:
            return
        settings = " ".join(f"{name}={value}" for name, value in more.items())
        last = (done.stdout + done.stderr).strip().splitlines()[-3:]
        self.problems.append(f"{os.path.basename(library)} REFUSE={filter_text} {settings}: status {done.returncode}: {' / '.join(last)}")


    def expect_end(self, library, filter_text, *command, **more):
        done = self.run(library, filter_text, *command, **more)
        if done.returncode != -signal.SIGSYS:
            self.problems.append(f"{os.path.basename(library)} REFUSE={filter_text}: status {done.returncode}: the filter meets nothing")


def shadow(runner, *arguments):
    return [runner.options.shadow, "--ops=20K", "--live=8M", *arguments]


def each_refusal(runner):
    for library, way in itertools.product(runner.libraries(), WAYS):
        for call in OTHERS + (MEMORY if way != "kill" else []):
            if not (library == runner.options.secure and call in SECURE_NEEDS):
                yield library, way, call


def one_call(runner):
    for library in runner.libraries():
        runner.expect_end(library, "ours:kill:mmap", *shadow(runner, "--threads=4"))
    for library, way, call in each_refusal(runner):
        runner.expect_life(library, f"ours:{way}:{call}", *shadow(runner, "--threads=4", "--expect=hakmem"))
    for library, way in itertools.product(runner.libraries(), WAYS):  # glibc's malloc needs futex only with several threads
        runner.expect_life(library, f"ours:{way}:futex", *shadow(runner, "--threads=1", "--expect=hakmem"))


def past_libc(runner):
    for call, keeper in (("mmap", "1"), ("clone", "2")):
        runner.expect_end(runner.options.library, f"ours:kill:{call}", *shadow(runner, "--threads=4"), REFUSE_PAST_LIBC="1", HAKMEM_KEEPER=keeper)
    for library, way, call in each_refusal(runner):
        if (way, call) not in PAST_LIBC_ASKED:
            runner.expect_life(library, f"ours:{way}:{call}", *shadow(runner, "--threads=4", "--expect=hakmem"), REFUSE_PAST_LIBC="1")
    for way in ["trap", *ERRORS]:  # KEEPER=2 wants hakmem's thread regardless of filters
        runner.expect_life(runner.options.library, f"ours:{way}:clone", *shadow(runner, "--threads=4", "--expect=hakmem"),
                           REFUSE_PAST_LIBC="1", HAKMEM_KEEPER="2")


def all_calls(runner):
    runner.expect_end(runner.options.library, "ours:kill:mmap", runner.options.api, "-v", "libc", "-x", "malloc_serves_every_size",
                      REFUSE_ARGUMENT="-x", TEST_EXPECTS_HAKMEM="1")
    for library, way in itertools.product(runner.libraries(), ["kill", "trap", "EPERM"]):
        secure = {"TEST_SECURE": "1"} if library == runner.options.secure else {}
        runner.expect_life(library, f"ours:{way}:{','.join(OTHERS)}", runner.options.api, "-v", "libc", REFUSE_ARGUMENT="-x",
                           TEST_EXPECTS_HAKMEM="1", **secure)


def passing(runner, library, names, **more):
    """The checks that pass, each in a separate process under the list."""
    return {name for name in names if runner.run(library, "list:kill:usual", runner.options.api, "-v", "libc", "-x", name, **more).returncode == 0}


def sandbox(runner):
    runner.expect_end(runner.options.library, "list:kill:read,write", *shadow(runner, "--threads=1"))
    for library, past in itertools.product(["", *runner.libraries()], [{}, {"REFUSE_PAST_LIBC": "1"}]):
        runner.expect_life(library, f"list:kill:usual,{MODEL}", *shadow(runner, "--threads=1"), **past)
    names = subprocess.run([runner.options.api, "-l"], capture_output=True, text=True, check=True).stdout.split()
    wanted = passing(runner, "", names)
    print(f"sandbox: {len(wanted)} of {len(names)} checks pass on the system's malloc")
    if len(wanted) < 50:
        runner.problems.append("too few to prove anything")
    found = passing(runner, runner.options.library, wanted, TEST_EXPECTS_HAKMEM="1")
    runner.problems += [f"check {name} does not pass" for name in sorted(wanted - found)]


def main():
    scenes = {"one_call": one_call, "past_libc": past_libc, "all_calls": all_calls, "sandbox": sandbox}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("refuse", "library", "shadow", "api"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--secure")
    parser.add_argument("scene", choices=scenes)
    runner = Runner(parser.parse_args())
    scenes[runner.options.scene](runner)
    for problem in runner.problems:
        print(problem)
    print(f"{runner.options.scene}: {runner.runs} runs, {len(runner.problems)} problems")
    return 1 if runner.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a program under one malloc or the other, and shows which one it really used.

A Side is "under glibc" or "under hakmem": an environment, its own folder, and calls that raise an exception when they fail.  The
library is preloaded from a copy in a world-readable folder with a plain name, so that other users (postgres) and any build path work.
"""
import contextlib
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time

CALL_SECONDS = 400  # only a hang takes this long, even on a busy machine
COMPLAINTS = re.compile(r"^(ERROR: ld\.so: .*|hakmem.*)$", re.M)
BINDING = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `malloc'")


class Failure(Exception):
    """A case cannot pass; the text says why."""


class Side:
    def __init__(self, name, folder, library=None):
        self.name, self.folder, self.library = name, folder, library
        self.user = None
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8", "TZ": "UTC"}
        self.env |= {key: value for key, value in os.environ.items() if key.startswith("HAKMEM_") or key == "LD_LIBRARY_PATH"}
        if library:
            self.env["LD_PRELOAD"] = str(library)

    def become(self, user):
        """From now on, runs as this user if the caller is root (PostgreSQL refuses root)."""
        if os.geteuid() == 0:
            record = pwd.getpwnam(user)
            os.chown(self.folder, record.pw_uid, record.pw_gid)
            self.user = user

    def start(self, command, env=None, **more):
        """Starts a process in its own process group."""
        user = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []} if self.user else {}
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return subprocess.Popen([str(word) for word in command], cwd=self.folder, env=self.env | (env or {}),
                                text=True, errors="replace", start_new_session=True, **user, **more)

    def call(self, *command, stdin=None, env=None, seconds=CALL_SECONDS):
        """Runs to the end; returns standard output.  A nonzero exit, or a message from the loader or hakmem, raises Failure."""
        process = self.start(command, env, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE)
        try:
            out, err = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            kill_tree(process)
            raise Failure(f"{self.name}: {title(command)}: no end after {seconds} s") from None
        if process.returncode != 0:
            raise Failure(f"{self.name}: {title(command)}: {ending(process.returncode)}\n{tail(out)}{tail(err)}")
        if complaint := COMPLAINTS.search(err):
            raise Failure(f"{self.name}: {title(command)}: {complaint[1]}")
        return out

    @contextlib.contextmanager
    def server(self, *command, ready, stop=signal.SIGTERM):
        """A server that runs while the block does; it must start, use the library, and end cleanly."""
        log = self.folder / "server.log"
        with log.open("w") as out:
            process = self.start(command, stdout=out, stderr=out)
        try:
            self.wait_ready(process, command, ready, log)
            self.require_mapped(process)
            yield process
            process.send_signal(stop)
            if (code := process.wait(120)) != 0:
                raise Failure(f"{self.name}: {title(command)}: {ending(code)}\n{tail(log.read_text())}")
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name}: {title(command)}: does not stop\n{tail(log.read_text())}") from None
        finally:
            kill_tree(process)
        if complaint := COMPLAINTS.search(log.read_text()):
            raise Failure(f"{self.name}: {title(command)}: {complaint[1]}")

    def wait_ready(self, process, command, ready, log):
        end = time.monotonic() + 120
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise Failure(f"{self.name}: {title(command)}: did not start\n{tail(log.read_text())}")
            time.sleep(0.05)

    def require_mapped(self, process):
        if self.library and str(self.library) not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
            raise Failure(f"{self.name}: process {process.pid} has not loaded {self.library}")

    def require_bound(self, *command):
        """Runs a short command and asks the loader where its malloc comes from."""
        if not self.library:
            return
        log = self.folder / "loader"
        self.call(*command, env={"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(log), "LD_BIND_NOW": "1"})
        text = "".join(path.read_text(errors="replace") for path in self.folder.glob("loader.*"))
        bound = BINDING.findall(text)
        for path in self.folder.glob("loader.*"):
            path.unlink()
        ours = {file for file, home in bound if home == str(self.library)}
        # Other files may be bound to a non-PIE program's own jump to malloc; it leads where the program itself is bound.
        homes = {home for _, home in bound} - ours - {str(self.library)}
        if homes or not ours:
            raise Failure(f"{self.name}: {command[0]}: malloc comes from {', '.join(sorted(homes)) or 'no shared library'}")


def descendants(pid):
    """All descendants of a process, whatever session they have moved to."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def kill_tree(process):
    """Ends the process and all it started."""
    below = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def title(command):
    text = " ".join(str(word) for word in command)
    return text if len(text) < 100 else text[:97] + "..."


def tail(text, lines=15):
    return "".join(f"  {line}\n" for line in (text or "").splitlines()[-lines:])


def ending(code):
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


@contextlib.contextmanager
def two_sides(library, keep=False):
    """Yields the glibc side and the hakmem side, in folders with short names of equal length: they hold sockets, whose paths may
    have at most 107 bytes."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="hakmem-"))
    try:
        root.chmod(0o755)
        copy = root / "libpreload.so"
        shutil.copy(library, copy)
        copy.chmod(0o755)
        sides = []
        for name, preload in (("glibc", None), ("hakmem", copy)):
            folder = root / name[0] / "work"
            folder.mkdir(parents=True)
            sides.append(Side(name, folder, preload))
        yield sides
    finally:
        if keep:
            print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)


def normalise(side, text):
    """The text without the one thing that differs between the two runs, the folder's name."""
    return text.replace(str(side.folder), "FOLDER")

"""What the results depend on besides the allocators: the machine and the commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _field(text: str, name: str) -> str:
    """The value of `name` in lines such as `MemTotal:  16 kB` or `NAME="Debian"`."""
    match = re.search(rf"^{name}\s*[:=]\s*(.*)$", text, re.MULTILINE)
    return match[1].strip('"') if match else ""


def distribution() -> str:
    return _field(_text("/etc/os-release"), "PRETTY_NAME")


def c_library() -> str:
    """glibc and its version; musl does not report itself."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return ""


def _cpu_model() -> str:
    cpuinfo = _text("/proc/cpuinfo")
    return _field(cpuinfo, "model name") or _field(cpuinfo, "CPU part") or platform.machine()


def _chosen(text: str) -> str:
    """The word in brackets: `always [madvise] never`."""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else text


def machine() -> dict[str, str]:
    """Facts that do not change while the benchmark runs; unavailable ones are left out."""
    system = os.uname()
    found = {
        "CPU": _cpu_model(),
        "architecture": system.machine,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "kernel": f"{system.sysname} {system.release}",
        "C library": c_library(),
        "distribution": distribution(),
        "page size": f"{os.sysconf('SC_PAGE_SIZE')} bytes",
        "transparent huge pages": _chosen(_text("/sys/kernel/mm/transparent_hugepage/enabled")),
        "frequency governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "variables": " ".join(
            f"{name}={value}"
            for name, value in sorted(os.environ.items())
            if name.startswith(("HAKMEM_", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "GLIBC_TUNABLES"))
        ),
    }
    return {name: value for name, value in found.items() if value}


def first_line(command: list[str]) -> str:
    """The first line that the command writes; empty if it fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].strip() if lines and done.returncode == 0 else ""


def commit(root: Path) -> str:
    """The commit of the tree at `root`, with a + if the tree differs from it."""
    found = first_line(["git", "-C", str(root), "rev-parse", "HEAD"])
    changed = found and first_line(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return found + ("+" if changed else "")

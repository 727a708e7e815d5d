"""What can be true of a process, a snapshot or another file: what lies beyond is damage, or a forgery."""

from __future__ import annotations

import os

_MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
READ_MOST = max(1 << 30, _MACHINE // 4)  # bytes at once: records of a heap are less than 1/1000 of it

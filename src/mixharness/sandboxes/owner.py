"""Which process owns a sandbox, told apart from a later process with the same pid."""

from __future__ import annotations

import os
from pathlib import Path


def mark(pid: int | None = None) -> str:
    """`pid.start time in clock ticks since boot.first part of the boot id`, or "" for a pid that is gone."""
    number = os.getpid() if pid is None else pid
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    start = stat.rpartition(")")[2].split()[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{number}.{start}.{boot}"


def alive(marked: str) -> bool:
    """Whether the process that made this mark still runs."""
    pid = marked.partition(".")[0]
    return pid.isdigit() and mark(int(pid)) == marked

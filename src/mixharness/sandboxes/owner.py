"""Which process owns a sandbox, told apart from a later process with the same pid."""

from __future__ import annotations

import os
from pathlib import Path


def mark(pid: int | None = None) -> str:
    """`pid.start time.boot id.pid namespace`, or "" for a pid that is gone."""
    number = os.getpid() if pid is None else pid
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    start = stat.rpartition(")")[2].split()[19]
    return f"{number}.{start}.{_where()}"


def _where() -> str:
    """This boot and pid namespace: a mark made elsewhere says nothing about the processes seen here."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"


def gone(marked: str) -> bool:
    """Whether the process that made this mark has certainly ended."""
    pid, _, rest = marked.partition(".")
    return pid.isdigit() and rest.partition(".")[2] == _where() and mark(int(pid)) != marked

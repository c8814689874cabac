"""Control groups, version 1 and 2: where a process's memory limit is counted, and groups of our own for bubblewrap."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def memory_group(pid: int) -> Path | None:
    """The directory of the memory controller that holds this process, or None where it can't be seen."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _existing(ROOT / "memory" / path.lstrip("/"))
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return _existing(ROOT / line[3:].lstrip("/"))
    return None


def _existing(path: Path) -> Path | None:
    return path if path.is_dir() else None


class OomCounter:
    """How often the memory limit killed something in the group of a process.

    Args:
        pid: any process in it; only looked at once.
    """

    def __init__(self, pid: int) -> None:
        group = memory_group(pid) if pid else None
        names = ("memory.oom_control", "memory.events")
        self._file = next((group / name for name in names if (group / name).exists()), None) if group else None

    def read(self) -> int:
        """The count; 0 where it can't be seen."""
        if self._file is None:
            return 0
        try:
            text = self._file.read_text()
        except OSError:  # the group went with the sandbox
            return 0
        return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)

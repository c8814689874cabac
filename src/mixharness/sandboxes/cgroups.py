"""Control groups, version 1 and 2: where a process's memory limit is counted, and groups of our own for bubblewrap.

A group is a directory named after its sandbox, with the owner's mark in the name, in every hierarchy that its limits
need: version 1 has one per controller, below the group we are in; version 2 has one for all, below the root (the
kernel allows no processes beside child groups elsewhere).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mixharness.errors import SandboxError
from mixharness.sandboxes import owner
from mixharness.sandboxes.base import SandboxLimits

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "pids", "cpu")
PARENT = "mixharness"
SWAP = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""Settings that exist only where the kernel accounts swap."""
REMOVE_S = 5.0
CPU_PERIOD_US = 100_000


def memory_group(pid: int) -> Path | None:
    """The directory of the memory controller that holds this process, or None where it can't be seen."""
    own = _own_groups(pid)
    path = own.get("memory", own.get(""))
    return path if path is not None and path.is_dir() else None


def _own_groups(pid: int | str) -> dict[str, Path]:
    """Controller → directory of its group; version 2's under ""."""
    found = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            found[name] = ROOT / name / path.lstrip("/")
    if (ROOT / "cgroup.controllers").exists() and "" in found:
        return {"": ROOT / found[""].relative_to(ROOT)}
    return {name: path for name, path in found.items() if name in CONTROLLERS}


def oom_kills(group: Path | None) -> int:
    """How often the memory limit killed something in this group; 0 where it can't be seen (any more)."""
    for name in ("memory.oom_control", "memory.events") if group else ():
        with contextlib.suppress(OSError):
            text = (group / name).read_text()  # type: ignore[operator]
            return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)
    return 0


class Group:
    """One sandbox's limits.

    Args:
        name: the sandbox's unique name.

    Attributes:
        memory: the directory where memory is counted.

    Raises:
        SandboxError: the kernel or our rights don't allow it.
    """

    def __init__(self, name: str, limits: SandboxLimits) -> None:
        self._folders: list[Path] = []
        try:
            for parent, settings in _plan(limits):
                folder = parent / f"{name}@{owner.mark()}"
                folder.mkdir()
                self._folders.append(folder)
                for file, value in settings.items():
                    if file not in SWAP or (folder / file).exists():
                        (folder / file).write_text(value)
            self.memory = self._folders[0]
        except OSError as error:
            self.remove()
            raise SandboxError(f"cannot limit memory, processes and CPU with control groups: {error}") from error

    def add(self, pid: int) -> None:
        """Moves a process in; what it starts follows."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Removes the directories; waits for processes that are about to end.

        Raises:
            SandboxError: something still runs inside.
        """
        for folder in self._folders:
            _remove(folder, time.monotonic() + REMOVE_S)
        self._folders.clear()


def _plan(limits: SandboxLimits) -> Iterator[tuple[Path, dict[str, str]]]:
    """Parent directory and settings of each group to make; the memory one first."""
    memory, pids = str(limits.memory_mb * 2**20), str(limits.pids)
    quota = str(max(1000, int(limits.cpus * CPU_PERIOD_US)))
    if (ROOT / "cgroup.controllers").exists():
        yield (
            _parent_v2(),
            {
                "memory.max": memory,
                "memory.swap.max": "0",
                "pids.max": pids,
                "cpu.max": f"{quota} {CPU_PERIOD_US}",
            },
        )
        return
    parents = _own_groups("self")
    yield _parent_v1(parents, "memory"), {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
    yield _parent_v1(parents, "pids"), {"pids.max": pids}
    yield _parent_v1(parents, "cpu"), {"cpu.cfs_period_us": str(CPU_PERIOD_US), "cpu.cfs_quota_us": quota}


def _parent_v1(own: dict[str, Path], controller: str) -> Path:
    folder = own.get(controller)
    return folder if folder is not None and folder.is_dir() else ROOT / controller


def _parent_v2() -> Path:
    parent = ROOT / PARENT
    enable = " ".join(f"+{name}" for name in CONTROLLERS)
    (ROOT / "cgroup.subtree_control").write_text(enable)
    parent.mkdir(exist_ok=True)
    (parent / "cgroup.subtree_control").write_text(enable)
    return parent


def _remove(folder: Path, deadline: float) -> None:
    pause = 0.0005
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise SandboxError(f"cannot remove control group {folder}: {error}") from error
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        else:
            return


def allowed() -> str:
    """ "" when groups can be made here, else why not."""
    try:
        Group(f"{PARENT}-check-{os.urandom(4).hex()}", SandboxLimits()).remove()
    except SandboxError as error:
        return str(error)
    return ""


def reap_groups(kill: Callable[[int], None]) -> list[str]:
    """Ends what runs in groups whose owner is gone and removes them; their names."""
    gone = set()
    for folder in _groups():
        name, _, mark = folder.name.partition("@")
        if not owner.gone(mark):
            continue
        for pid in (folder / "cgroup.procs").read_text().split():
            kill(int(pid))
        _remove(folder, time.monotonic() + REMOVE_S)
        gone.add(name)
    return sorted(gone)


def _groups() -> Iterator[Path]:
    if (ROOT / "cgroup.controllers").exists():
        parents = [ROOT / PARENT]
    else:
        own = _own_groups("self")
        parents = [path for name in CONTROLLERS for path in {_parent_v1(own, name), ROOT / name}]
    for parent in parents:
        yield from parent.glob(f"{PARENT}-*@*")

"""What a sandbox costs: create, exec, listen, close, alone and eight at once, against the usual ways.

    python perf/sandbox.py [--kinds docker,bubblewrap] [--repeats 7] [--at-once 8] [--json]

Needs root and Docker Engine. Everything measured runs in one control group of its own, with a Docker daemon of its
own in it, so CPU milliseconds count this process, the daemon, its helpers and the programs inside, and nothing else
that runs on the machine. Milliseconds of the wall are medians; CPU is the cheapest repeat, as caches only ever add.
Peers: docker-py with `exec_run` (each program a `docker exec`), and a fresh `bwrap` for each program.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mixharness.sandboxes import get_provider
from mixharness.sandboxes.base import Sandbox, SandboxSpec
from mixharness.sandboxes.daemon import connect
from mixharness.sandboxes.image import current_image

CGROUPS = Path("/sys/fs/cgroup")
EXECS = 20
Row = dict[str, float]


@contextmanager
def measured_group() -> Iterator[Callable[[], float]]:
    """Puts this process into a control group; yields its CPU clock in milliseconds."""
    version_2 = (CGROUPS / "cgroup.controllers").exists()
    parent = CGROUPS if version_2 else next(path for path in CGROUPS.glob("cpu*") if (path / "cpuacct.usage").exists())
    before = "/"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if ("cpuacct" in names.split(",")) or (version_2 and not names):
            before = path
    group = parent / f"mixharness-perf-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(os.getpid()))

    def clock() -> float:
        if version_2:
            return int((group / "cpu.stat").read_text().split()[1]) / 1e3
        return int((group / "cpuacct.usage").read_text()) / 1e6

    try:
        yield clock
    finally:
        (parent / before.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
        for made in {group, *CGROUPS.glob(f"*/{group.name}")}:  # the daemon makes one in every hierarchy
            for folder in sorted((path for path in made.rglob("*") if path.is_dir()), reverse=True):
                folder.rmdir()
            made.rmdir()


@contextmanager
def own_daemon() -> Iterator[None]:
    """A Docker daemon in this process's control group."""
    folder = Path(tempfile.mkdtemp(prefix="mixharness-perf-"))
    command = ["dockerd", "--iptables=false", "--bridge=none", "-H", f"unix://{folder}/sock"]
    command += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"]
    command += ["--cgroup-parent", f"/mixharness-perf-{os.getpid()}"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not (folder / "sock").exists():
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"dockerd did not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        os.environ["DOCKER_HOST"] = f"unix://{folder}/sock"
        yield
    finally:
        daemon.terminate()
        daemon.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


class Stopwatch:
    """Wall and CPU milliseconds by name, over repeats."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wall: dict[str, list[float]] = {}
        self._cpu: dict[str, list[float]] = {}

    async def time(self, name: str, work: Awaitable[Any], times: int = 1) -> Any:
        """Awaits `work`, which does the thing `times` times."""
        wall, cpu = time.perf_counter(), self._clock()
        result = await work
        self._wall.setdefault(name, []).append((time.perf_counter() - wall) * 1e3 / times)
        self._cpu.setdefault(name, []).append((self._clock() - cpu) / times)
        return result

    def row(self) -> Row:
        """name_ms and name_cpu_ms of everything timed."""
        wall = {f"{name}_ms": round(statistics.median(values), 2) for name, values in self._wall.items()}
        return wall | {f"{name}_cpu_ms": round(min(values), 2) for name, values in self._cpu.items()}


async def measure(kind: str, clock: Callable[[], float], repeats: int, at_once: int) -> Row:
    """Our sandboxes of one kind."""
    provider, watch = get_provider(kind), Stopwatch(clock)
    with tempfile.TemporaryDirectory() as folder:

        async def life(number: int) -> None:
            async with await provider.create(spec(folder, number)) as sandbox:
                await sandbox.exec(["true"])

        await life(0)
        for _ in range(repeats):
            sandbox = await watch.time("create", provider.create(spec(folder, 0)))
            await watch.time("exec", execs(sandbox), EXECS)
            (await watch.time("listen", sandbox.listen(8080))).close()
            await watch.time("close", sandbox.close())
            await watch.time("life", life(0))
            await watch.time(f"life_at_{at_once}", asyncio.gather(*map(life, range(at_once))), at_once)
    return watch.row()


async def execs(sandbox: Sandbox) -> None:
    """Short programs one after another."""
    for _ in range(EXECS):
        await sandbox.exec(["true"])


def spec(folder: str, number: int) -> SandboxSpec:
    """A sandbox on an empty workspace."""
    workspace = Path(folder, str(number))
    workspace.mkdir(exist_ok=True)
    return SandboxSpec("perf", workspace)


async def docker_exec_run(clock: Callable[[], float], repeats: int) -> Row:
    """docker-py as its documentation shows it, with the same limits."""
    import docker

    client, watch = docker.from_env(), Stopwatch(clock)
    options: dict[str, Any] = {"network_mode": "none", "read_only": True, "cap_drop": ["ALL"], "user": "1000:1000"}
    options |= {"security_opt": ["no-new-privileges"], "mem_limit": "2g", "pids_limit": 512, "nano_cpus": 2 * 10**9}
    options |= {"tmpfs": {"/tmp": "size=512m", "/home/agent": "size=512m"}, "detach": True}

    def start() -> Any:
        return client.containers.run(current_image().tag, ["sleep", "3600"], **options)

    def life() -> None:
        container = start()
        container.exec_run(["true"], demux=True)
        container.remove(force=True)

    await asyncio.to_thread(life)
    for _ in range(repeats):
        container = await watch.time("create", asyncio.to_thread(start))
        await watch.time("exec", asyncio.to_thread(container.exec_run, ["true"], demux=True))
        await watch.time("close", asyncio.to_thread(container.remove, force=True))
        await watch.time("life", asyncio.to_thread(life))
    return watch.row()


async def bwrap_each(clock: Callable[[], float], repeats: int) -> Row:
    """A bwrap for every program: nothing persists, no limits, no filter."""
    watch, root = Stopwatch(clock), str(current_image().rootfs)
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", root, "/", "--tmpfs", "/tmp", "true"]

    async def once() -> None:
        await (await asyncio.create_subprocess_exec(*command)).wait()

    for _ in range(repeats):
        await watch.time("exec", once())
    return watch.row()


async def run(arguments: argparse.Namespace, clock: Callable[[], float]) -> dict[str, Any]:
    """The document that --json prints."""
    connect()
    results = {k: await measure(k, clock, arguments.repeats, arguments.at_once) for k in arguments.kinds.split(",")}
    peers = {
        "docker-py exec_run": await docker_exec_run(clock, arguments.repeats),
        "bwrap per program": await bwrap_each(clock, arguments.repeats),
    }
    usual = peers["docker-py exec_run"]
    ratios = {
        f"{kind}: {name} against docker-py exec_run": round(row[name] / usual[name], 3)
        for kind, row in results.items()
        for name in ("exec_ms", "exec_cpu_ms", "life_ms", "life_cpu_ms")
    }
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "kernel": platform.release()}
    machine |= {"docker": connect().version()["Version"], "load": round(os.getloadavg()[0], 1)}
    return {"name": "sandbox", "machine": machine, "results": results, "peers": peers, "ratios": ratios}


def table(document: dict[str, Any]) -> str:
    """The document for people."""
    lines = [f"{'':28}{'wall ms':>10}{'CPU ms':>10}"]
    for who, row in (document["results"] | document["peers"]).items():
        lines.append(who)
        for name in (key[:-3] for key in row if key.endswith("_ms") and not key.endswith("_cpu_ms")):
            lines.append(f"  {name:26}{row[name + '_ms']:10.1f}{row[name + '_cpu_ms']:10.1f}")
    return "\n".join([*lines, *(f"{name}: {value}" for name, value in document["ratios"].items())])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="docker,bubblewrap")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("perf/sandbox.py needs root: it makes a control group and starts a Docker daemon of its own")
    with measured_group() as clock, own_daemon():
        document = asyncio.run(run(arguments, clock))
    print(json.dumps(document) if arguments.json else table(document))


if __name__ == "__main__":
    main()

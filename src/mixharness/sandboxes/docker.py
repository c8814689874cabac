"""The docker kind: one container a sandbox, with no network, no capability and a read-only root.

Two requests to the daemon make it (create, start), one removes it; everything between goes through PID 1's control
socket, which costs a millisecond where `docker exec` takes eighty. The container removes itself when PID 1 ends, and
PID 1 ends when this process does.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixharness.errors import SandboxError
from mixharness.sandboxes import owner
from mixharness.sandboxes.base import SANDBOX_HOME, SEED_DIR, Check, Mount, SandboxSpec
from mixharness.sandboxes.cgroups import memory_group, oom_kills
from mixharness.sandboxes.control import Control
from mixharness.sandboxes.daemon import FIX, DaemonMissing, connect
from mixharness.sandboxes.image import current_image
from mixharness.sandboxes.supervised import (
    BASE_ENV,
    START_S,
    SupervisedSandbox,
    check_spec,
    finish,
    init_command,
    own_tree,
    sandbox_ids,
    shm_mb,
    tmpfs_mb,
    unique_name,
)

if TYPE_CHECKING:
    from docker import APIClient

LABEL = "mixharness"
CONTROL_DIR = "/run/mixharness"


class DockerSandbox(SupervisedSandbox):
    """A running container."""

    kind = "docker"

    def __init__(self, spec: SandboxSpec, control: Control, container: str, pid: int) -> None:
        super().__init__(spec, control)
        self.container = container
        self._group = memory_group(pid) if pid else None

    def _oom_kills(self) -> int:
        return oom_kills(self._group)

    async def _remove(self) -> None:
        await asyncio.to_thread(_remove, self.container)


class DockerProvider:
    """Makes containers."""

    kind = "docker"

    def check(self) -> Check:
        """Whether a daemon answers."""
        try:
            version = connect().version(api_version=False)["Version"]
        except DaemonMissing as error:
            return Check(self.kind, False, str(error), FIX)
        return Check(self.kind, True, f"Docker {version}")

    async def create(self, spec: SandboxSpec) -> DockerSandbox:
        """See `SandboxProvider.create`."""
        check_spec(spec)
        image = await asyncio.to_thread(current_image)
        if image.tag is None:
            raise SandboxError(f"no Docker daemon answers. Fix: {FIX}")
        name = unique_name(spec.label)
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        starting = asyncio.create_task(_start(spec, image.tag, name, folder))
        try:
            await asyncio.wait({starting})
            sandbox = starting.result()
            await sandbox._seed()
        except BaseException:
            starting.cancel()
            await finish(asyncio.ensure_future(asyncio.to_thread(_remove, name)))
            raise
        return sandbox


async def _start(spec: SandboxSpec, tag: str, name: str, folder: Path) -> DockerSandbox:
    """Starts the container and waits for PID 1's call; the control directory is gone afterwards."""
    loop = asyncio.get_running_loop()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
            waiting.bind(str(folder / "control"))
            waiting.listen(1)
            waiting.setblocking(False)
            folder.chmod(0o711)
            (folder / "control").chmod(0o666)
            running = asyncio.ensure_future(asyncio.to_thread(_run, spec, tag, name, folder))
            container = await finish(running)
            try:
                connection, _ = await asyncio.wait_for(loop.sock_accept(waiting), START_S)
            except TimeoutError:
                raise SandboxError(f"container {name} started, but its first process never called") from None
        control = Control(connection)
        pid = await control.hello(START_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return DockerSandbox(spec, control, container, pid)


def _run(spec: SandboxSpec, tag: str, name: str, folder: Path) -> str:
    """Creates and starts a container; its id."""
    from docker.errors import DockerException

    uid, gid = sandbox_ids()
    own_tree(spec.workspace, uid, gid)
    if spec.seed:
        own_tree(spec.seed, uid, gid)
    client: Any = connect()
    try:
        container: str = client.create_container_from_config(container_config(spec, tag, folder, client), name)["Id"]
        client.start(container)
    except DockerException as error:
        raise SandboxError(f"starting container {name} failed: {error}") from error
    return container


def container_config(spec: SandboxSpec, tag: str, folder: Path, client: APIClient) -> dict[str, Any]:
    """The container as Docker's API wants it."""
    from docker.types import LogConfig

    uid, gid = sandbox_ids()
    limits = spec.limits
    tmpfs = f"rw,nosuid,nodev,size={tmpfs_mb(spec)}m,uid={uid},gid={gid},mode="
    memory = limits.memory_mb * 2**20
    host = client.create_host_config(
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        mem_limit=memory,
        memswap_limit=memory,
        mem_swappiness=None,
        pids_limit=limits.pids,
        nano_cpus=int(limits.cpus * 1e9),
        shm_size=shm_mb(spec) * 2**20,
        tmpfs={"/tmp": tmpfs + "1777,exec", SANDBOX_HOME: tmpfs + "0700,exec"},
        mounts=[_bind(mount) for mount in _mounts(spec, folder)],
        ipc_mode="private",
        auto_remove=True,
        init=False,
        log_config=LogConfig(type="none"),
    )
    config: dict[str, Any] = client.create_container_config(
        image=tag,
        command=init_command(f"{CONTROL_DIR}/control", uid, gid, spec.workdir),
        user=f"{uid}:{gid}",
        working_dir=spec.workdir,
        hostname="sandbox",
        environment=_environment(BASE_ENV),
        labels={LABEL: "1", f"{LABEL}.rollout": spec.label, f"{LABEL}.pid": owner.mark()},
        networking_config=None,
        host_config=host,
    )
    return config


def _environment(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]


def _mounts(spec: SandboxSpec, folder: Path) -> list[Mount]:
    seed = [Mount(spec.seed, SEED_DIR)] if spec.seed else []
    return [Mount(spec.workspace, spec.workdir, read_only=False), Mount(folder, CONTROL_DIR), *seed, *spec.mounts]


def _bind(mount: Mount) -> Any:
    return {
        "Type": "bind",
        "Source": str(mount.source.absolute()),
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _remove(container: str) -> None:
    """Removes a container, whatever its state; one that is gone or going is fine, and waited for."""
    from docker.errors import APIError, DockerException, NotFound

    client = connect()
    try:
        client.remove_container(container, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409:
            raise SandboxError(f"removing container {container} failed: {error}") from error
        try:
            client.wait(container, condition="removed")
        except NotFound:
            return
    except DockerException as error:
        raise SandboxError(f"removing container {container} failed: {error}") from error


def reap_containers() -> list[str]:
    """Removes containers whose owning process is gone; their names."""
    gone = []
    for container in connect().containers(all=True, filters={"label": f"{LABEL}=1"}):
        if not owner.alive(container["Labels"].get(f"{LABEL}.pid", "")):
            _remove(container["Id"])
            gone.append(container["Names"][0].lstrip("/"))
    return gone

"""The connection to the Docker daemon: one low-level client a process, shared by all threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from mixharness.errors import SandboxError

if TYPE_CHECKING:
    from docker import APIClient

TIMEOUT_S = 120
THREADS = 32
FIX = "apt-get install -y --no-install-recommends docker.io && (dockerd >/var/log/dockerd.log 2>&1 &)"

T = TypeVar("T")
_lock = threading.Lock()
_shared: list[APIClient] = []
_threads: list[ThreadPoolExecutor] = []


def _forget() -> None:
    """In a forked child: its parent's connections and threads are not its own."""
    global _lock  # noqa: PLW0603 - the parent may have held it
    _lock = threading.Lock()
    _shared.clear()
    _threads.clear()


os.register_at_fork(after_in_child=_forget)


class DaemonMissing(SandboxError):
    """No Docker daemon answers, or docker-py isn't installed."""


def connect() -> APIClient:
    """This process's client; urllib3's pool is thread-safe.

    Raises:
        DaemonMissing: docker-py is missing or no daemon answers.
    """
    with _lock:
        if not _shared:
            _shared.append(_make())
        return _shared[0]


def _make() -> APIClient:
    try:
        import docker
        from docker.errors import DockerException
        from docker.utils import kwargs_from_env
    except ImportError as error:
        raise DaemonMissing("docker-py is missing: pip install docker") from error
    try:
        environment = kwargs_from_env()
        return docker.APIClient(version="auto", timeout=TIMEOUT_S, num_pools=THREADS, **environment)
    except DockerException as error:
        raise DaemonMissing(f"no Docker daemon answers: {error}") from error


def in_thread(function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Runs a blocking call on threads of our own: the loop's few are for everybody's short work."""
    with _lock:
        if not _threads:
            _threads.append(ThreadPoolExecutor(THREADS, thread_name_prefix="mixharness-docker"))
    return asyncio.get_running_loop().run_in_executor(_threads[0], function, *arguments)

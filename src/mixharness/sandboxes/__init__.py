"""Sandboxes: docker, bubblewrap and (by name only) process; the image they share.

`get_provider(name)` chooses; "auto" is docker, then bubblewrap, else an error that names both fixes.
Imports only plain data.
"""

from __future__ import annotations

from collections.abc import Callable

from mixharness.errors import ConfigError, UnknownName
from mixharness.sandboxes.base import Check, SandboxProvider
from mixharness.sandboxes.bubblewrap import BubblewrapProvider, reap_bubblewraps
from mixharness.sandboxes.docker import DockerProvider, reap_containers
from mixharness.sandboxes.process import ProcessProvider

_KINDS: dict[str, Callable[[], SandboxProvider]] = {
    "docker": DockerProvider,
    "bubblewrap": BubblewrapProvider,
    "process": ProcessProvider,
}
_AUTO = ("docker", "bubblewrap")


def provider_names() -> tuple[str, ...]:
    """Every name `get_provider` takes, besides "auto"."""
    return tuple(_KINDS)


def reap_orphans() -> tuple[str, ...]:
    """Removes every sandbox whose owning process is gone; their names.

    A process does so itself before its first sandbox. What belongs to a living process is left alone.
    """
    containers: list[str] = []
    if DockerProvider().check().ok:
        containers = reap_containers()
    return (*containers, *reap_bubblewraps())


def get_provider(name: str = "auto") -> SandboxProvider:
    """A provider by name; "auto": the first that works here, docker before bubblewrap.

    Raises:
        UnknownName: no such kind.
        ConfigError: none works here; says how to fix each.
    """
    if name in _KINDS:
        return _KINDS[name]()
    if name != "auto":
        raise UnknownName("sandbox", name, ("auto", *provider_names()))
    checks: list[Check] = []
    for kind in _AUTO:
        provider = _KINDS[kind]()
        check = provider.check()
        if check.ok:
            return provider
        checks.append(check)
    fixes = "; ".join(f"{check.name}: {check.detail}. Fix: {check.fix}" for check in checks)
    raise ConfigError(f"no sandbox works here. {fixes}")

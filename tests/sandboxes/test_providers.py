"""Choosing a kind; what is said when none works."""

from __future__ import annotations

import gc

import pytest

from mixharness import sandboxes
from mixharness.errors import ConfigError, UnknownName
from mixharness.sandboxes.base import Check, SandboxProvider
from mixharness.sandboxes.bubblewrap import BubblewrapProvider
from mixharness.sandboxes.docker import DockerProvider


def broken(self: SandboxProvider) -> Check:
    return Check(self.kind, False, "is not here", f"install {self.kind}")


def working(self: SandboxProvider) -> Check:
    return Check(self.kind, True, "")


def test_names() -> None:
    assert sandboxes.provider_names() == ("docker", "bubblewrap", "process")
    for name in sandboxes.provider_names():
        assert sandboxes.get_provider(name).kind == name
    with pytest.raises(UnknownName, match="did you mean docker"):
        sandboxes.get_provider("dokcer")


@pytest.mark.parametrize("docker, chosen", [(working, "docker"), (broken, "bubblewrap")])
def test_auto_prefers_docker(monkeypatch: pytest.MonkeyPatch, docker: object, chosen: str) -> None:
    monkeypatch.setattr(DockerProvider, "check", docker)
    monkeypatch.setattr(BubblewrapProvider, "check", working)
    assert sandboxes.get_provider().kind == chosen


def test_auto_never_runs_unprotected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DockerProvider, "check", broken)
    monkeypatch.setattr(BubblewrapProvider, "check", broken)
    with pytest.raises(ConfigError, match=r"install docker.*install bubblewrap"):
        sandboxes.get_provider("auto")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # docker-py leaves its failed socket
def test_without_a_daemon_docker_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    monkeypatch.setattr("mixharness.sandboxes.daemon._shared", [])
    check = DockerProvider().check()
    gc.collect()
    assert not check.ok and "no Docker daemon answers" in check.detail and "docker.io" in check.fix


def test_without_bwrap_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    check = BubblewrapProvider().check()
    assert not check.ok and "bubblewrap" in check.fix

"""Building the image: both ways, atomically, only when something changed."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from mixharness.errors import SandboxError
from mixharness.sandboxes import harvest, image
from mixharness.sandboxes.base import SandboxSpec
from mixharness.sandboxes.bubblewrap import BubblewrapProvider
from mixharness.sandboxes.daemon import connect
from mixharness.sandboxes.image import build_image, current_image

pytestmark = pytest.mark.integration


def test_an_unchanged_machine_builds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("built again")

    known = current_image(docker=False)
    monkeypatch.setattr(harvest, "harvest", never)
    again = build_image(docker=False)
    assert again.stamp == known.stamp and not again.built and again.seconds < 5
    assert (image.image_dir() / "rootfs").resolve() == known.rootfs.resolve()


def test_what_the_image_holds() -> None:
    root = current_image(docker=False).rootfs
    for point in harvest.MOUNT_POINTS:
        assert stat.S_IMODE((root / point[1:]).stat().st_mode) == 0o755, point
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if path.stat().st_mode & 0o6000] == []
    assert [path for path in files if not path.stat().st_mode & 0o004] == []
    dangling = [path for path in root.rglob("*") if path.is_symlink() and not _resolves(root, path)]
    assert dangling == []
    missing = [path for path in (root / "usr/bin").iterdir() if "not found" in _ldd(path)]
    assert missing == []


def _resolves(root: Path, link: Path) -> bool:
    target = os.readlink(link)
    return (root / target[1:] if target.startswith("/") else link.parent / target).exists()


def _ldd(path: Path) -> str:
    return subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout


def test_a_failed_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(root: Path, progress: object) -> None:
        root.mkdir()
        (root / "half").touch()
        raise SandboxError("disk full")

    monkeypatch.setenv("MIXHARNESS_HOME", str(tmp_path))
    monkeypatch.setattr(harvest, "harvest", fails)
    with pytest.raises(SandboxError, match="disk full"):
        build_image(docker=False)
    assert [path.name for path in (tmp_path / "image").iterdir()] == [".lock"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # docker-py leaves its failed socket
def test_without_programs_and_daemon_the_fix_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIXHARNESS_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    monkeypatch.setattr("mixharness.sandboxes.daemon._shared", [])
    monkeypatch.setattr(harvest, "missing", lambda: ["git"])
    with pytest.raises(SandboxError, match=r"lacks git.*apt-get install"):
        build_image()
    gc.collect()


async def test_the_dockerfile_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All but the registry: the base is this machine's own image, and the packages are there already."""
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    original = (Path(image.__file__).parent / "Dockerfile").read_text()
    base, _, rest = original.partition("RUN ")
    assert "ARG BASE=" in base and "FROM ${BASE}" in base and "python3-pytest" in rest
    own = current_image().tag
    (recipe / "Dockerfile").write_text(base.replace("node:24-bookworm-slim", own) + "COPY Dockerfile /usr/lib/marker\n")
    monkeypatch.setenv("MIXHARNESS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(image, "DOCKERFILE", recipe / "Dockerfile")
    lines: list[str] = []
    try:
        built = build_image(method="dockerfile", progress=lines.append, docker=False)
        assert built.built and (built.rootfs / "usr/lib/marker").is_file() and lines
        monkeypatch.setattr("mixharness.sandboxes.bubblewrap.current_image", lambda docker: built)
        (tmp_path / "workspace").mkdir()
        async with await BubblewrapProvider().create(SandboxSpec("dockerfile", tmp_path / "workspace")) as sandbox:
            assert (await sandbox.exec(["ls", "/usr/lib/marker"])).exit_code == 0
    finally:
        connect().remove_image(f"{image.REPOSITORY}-base:{image.stamp_of('dockerfile')}", force=True)
        shutil.rmtree(tmp_path / "home", ignore_errors=True)

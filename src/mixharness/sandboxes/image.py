"""The sandbox image: one root filesystem for every kind of sandbox, made once for each recipe.

`build_image()` puts it at `$MIXHARNESS_HOME/image/rootfs` and, where a Docker daemon answers, also imports it as
`mixharness/sandbox:<stamp>`. Two ways: "harvest" copies programs and their libraries from this machine (no registry
needed); "dockerfile" builds the Dockerfile next to this file and unpacks it. The stamp covers the recipe and the
programs it would copy, so an unchanged machine builds once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mixharness.errors import SandboxError
from mixharness.paths import image_dir
from mixharness.sandboxes import harvest
from mixharness.sandboxes.daemon import DaemonMissing, connect

_log = logging.getLogger(__name__)
REPOSITORY = "mixharness/sandbox"
DOCKERFILE = Path(__file__).with_name("Dockerfile")
Method = Literal["auto", "harvest", "dockerfile"]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class ImageInfo:
    """The image as it is on this machine.

    Attributes:
        stamp: identifies its content; 12 hex digits.
        rootfs: the root filesystem, complete and never changed afterwards.
        tag: Docker's name for it, or "" where no daemon answers.
        built: False when it was there already.
        seconds: what this call took.
    """

    stamp: str
    rootfs: Path
    tag: str
    built: bool = False
    seconds: float = 0.0


def build_image(
    force: bool = False, method: Method = "auto", progress: Progress = lambda line: None, *, docker: bool = True
) -> ImageInfo:
    """Makes the image, or finds it made.

    Args:
        force: build even when the stamp is there.
        method: "auto" harvests where this machine has what that takes, else builds the Dockerfile.
        progress: called with a line per stage.
        docker: also give it to the daemon, if one answers.

    Raises:
        SandboxError: neither way works here; says what is missing.
    """
    started = time.monotonic()
    method = _choose(method)
    stamp = stamp_of(method)
    with _lock():
        rootfs = image_dir() / f"rootfs-{stamp}"
        built = force or not rootfs.is_dir()
        if built:
            _build(method, stamp, rootfs, progress)
        _point(image_dir() / "rootfs", rootfs.name)
        tag = _import(rootfs, stamp, force, progress) if docker else ""
        _prune(rootfs)
    return ImageInfo(stamp, rootfs, tag, built, time.monotonic() - started)


def _choose(method: Method) -> Literal["harvest", "dockerfile"]:
    if method != "auto":
        return method
    missing = harvest.missing()
    if not missing:
        return "harvest"
    try:
        connect().ping()
    except DaemonMissing as error:
        raise SandboxError(
            f"no sandbox image: this machine lacks {', '.join(missing)} to copy, "
            f"and no Docker daemon answers ({error}). Fix: {harvest.FIX}"
        ) from error
    return "dockerfile"


def stamp_of(method: str) -> str:
    """Identifies what a method would build here, now."""
    recipe = hashlib.sha256(method.encode())
    for path in (DOCKERFILE, *map(Path(__file__).with_name, ("harvest.py", "init.py", "seccomp.py"))):
        recipe.update(path.read_bytes())
    if method == "harvest":
        recipe.update(harvest.fingerprint().encode())
    return recipe.hexdigest()[:12]


def _build(method: str, stamp: str, rootfs: Path, progress: Progress) -> None:
    """Builds beside the target and renames: another process sees all of it or nothing."""
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=image_dir()))
    try:
        root = work / "rootfs"
        if method == "harvest":
            harvest.harvest(root, progress)
        else:
            _dockerfile(root, stamp, progress)
        harvest.finish(root, Path(__file__).parent / "init.py")
        if rootfs.is_dir():
            rootfs.rename(work / "old")
        root.rename(rootfs)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _dockerfile(root: Path, stamp: str, progress: Progress) -> None:
    progress("docker build (needs a registry)")
    client = connect()
    base = f"{REPOSITORY}-base:{stamp}"
    for line in client.build(path=str(DOCKERFILE.parent), tag=base, rm=True, decode=True):
        if "error" in line:
            raise SandboxError(f"docker build failed: {line['error']}. Fix: mixharness image build --method harvest")
        if text := line.get("stream", "").strip():
            progress(text)
    container = client.create_container(base, command=["true"])["Id"]
    try:
        root.mkdir(mode=0o755)
        with subprocess.Popen(["tar", "-xf", "-", "-C", str(root)], stdin=subprocess.PIPE) as tar:
            assert tar.stdin is not None
            for chunk in client.export(container):
                tar.stdin.write(chunk)
        if tar.returncode:
            raise SandboxError(f"unpacking the image failed: tar ended with {tar.returncode}")
    finally:
        client.remove_container(container, force=True)


def _import(rootfs: Path, stamp: str, force: bool, progress: Progress) -> str:
    tag = f"{REPOSITORY}:{stamp}"
    try:
        client = connect()
        client.ping()
    except DaemonMissing:
        return ""
    if not force and client.images(name=tag):
        return tag
    progress(f"docker import {tag}")
    command = ["tar", "-C", str(rootfs), "--owner=0", "--group=0", "--numeric-owner", "-cf", "-", "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        answer = client.import_image_from_stream(tar.stdout, repository=REPOSITORY, tag=stamp)
    last = json.loads(answer.strip().splitlines()[-1])
    if tar.returncode or "error" in last:
        raise SandboxError(f"docker import failed: {last.get('error', f'tar ended with {tar.returncode}')}")
    return tag


@contextmanager
def _lock() -> Iterator[None]:
    image_dir().mkdir(parents=True, exist_ok=True)
    with (image_dir() / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _point(link: Path, target: str) -> None:
    if link.is_symlink() and os.readlink(link) == target:
        return
    fresh = link.with_name(f".link-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.rename(link)


def _prune(keep: Path) -> None:
    """Drops root filesystems of older recipes, a day after they were made: running sandboxes may still show one."""
    for old in image_dir().glob("rootfs-*"):
        if old != keep and time.time() - old.stat().st_mtime > 86_400:
            shutil.rmtree(old, ignore_errors=True)


_current: dict[Path, ImageInfo] = {}


def current_image(*, docker: bool = True) -> ImageInfo:
    """The image that sandboxes start from; built on the first use where it is missing.

    Raises:
        SandboxError: it can't be built here.
    """
    known = _current.get(image_dir())
    if known is None or not known.rootfs.is_dir() or (docker and not known.tag):
        known = _current[image_dir()] = build_image(progress=_log.info, docker=docker)
    return known

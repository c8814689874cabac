"""bubblewrap for an ordinary user: in a user namespace, with everything but the limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import mixharness.errors
from mixharness.sandboxes.image import current_image

SYSTEM_PYTHON = "/usr/bin/python3"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which takes root"),
    pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="needs a Python that every user can run"),
]

SCRIPT = """
import asyncio, json, os, sys
from pathlib import Path
sys.path.insert(0, "src")
from mixharness.sandboxes import image
from mixharness.sandboxes.base import SandboxSpec
from mixharness.sandboxes.bubblewrap import BubblewrapProvider

async def main():
    here = Path.cwd()
    image._current[image.image_dir()] = image.ImageInfo("copy", here / "rootfs", "")
    provider = BubblewrapProvider()
    check = provider.check()
    found = {"ok": check.ok, "detail": check.detail}
    async with await provider.create(SandboxSpec("user", here / "workspace", seed=here / "seed")) as sandbox:
        status = "grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status"
        script = "id -u; cat ~/seeded; touch file; touch /usr/x ~/x; cat /proc/1/environ"
        result = await sandbox.exec(["bash", "-c", f"{script}; {status}"])
        found["lines"] = result.stdout.splitlines()
        found["refused"] = result.stderr.splitlines()
        unshare = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))"
        found["unshare"] = (await sandbox.exec(["python3", "-c", unshare])).stdout
        found["timed_out"] = (await sandbox.exec(["bash", "-c", "setsid sleep 99 & sleep 98"], timeout_s=0.5)).timed_out
        found["left"] = (await sandbox.exec(["pgrep", "sleep"])).stdout
        with await sandbox.listen(8080) as sock:
            found["name"] = sock.getsockname()
    found["owner"] = (here / "workspace/file").stat().st_uid
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of user 1000 with the package's sandboxes and the image in it."""
    folder = Path(tempfile.mkdtemp(prefix="mixharness-user-"))
    try:
        package = Path(mixharness.errors.__file__).parent
        (folder / "src/mixharness").mkdir(parents=True)
        (folder / "src/mixharness/__init__.py").touch()
        for name in ("errors.py", "paths.py", "limits.py"):
            shutil.copy(package / name, folder / "src/mixharness")
        shutil.copytree(package / "sandboxes", folder / "src/mixharness/sandboxes")
        for name in ("workspace", "seed", "home"):
            (folder / name).mkdir()
        (folder / "seed/seeded").write_text("seed\n")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 1000, 1000)
        rootfs = current_image(docker=False).rootfs
        shutil.copytree(rootfs, folder / "rootfs", symlinks=True, copy_function=_link)
        yield folder
    finally:
        shutil.rmtree(folder)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def test_the_same_guarantees_without_root(place: Path) -> None:
    done = subprocess.run(
        [SYSTEM_PYTHON, "-c", SCRIPT],
        cwd=place,
        user=1000,
        group=1000,
        extra_groups=[],
        env={"HOME": str(place / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] and "NOT limited" in found["detail"]
    zero = "0000000000000000"
    capabilities = [f"{name}:\t{zero}" for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    assert found["lines"] == ["1000", "seed", *capabilities, "NoNewPrivs:\t1", "Seccomp:\t2"]
    assert [line.rpartition(": ")[2] for line in found["refused"]] == ["Read-only file system", "Permission denied"]
    assert found["unshare"] == "-1\n" and found["timed_out"] and found["left"] == ""
    assert found["name"] == ["127.0.0.1", 8080] and found["owner"] == 1000

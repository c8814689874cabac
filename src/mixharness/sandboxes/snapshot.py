"""A workspace as one file, written and read without trusting what an agent put into it.

`snapshot` keeps folders, regular files and symbolic links (as links, wherever they point); devices, fifos and sockets
are left out, hard links become copies, set-id bits go. Nothing outside the workspace is ever opened: every step is
relative to an open folder and follows no link. `restore` writes links last, so no path can lead through one.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import zstandard

from mixharness.errors import HarnessError, SandboxError

MAX_BYTES = 2 * 2**30
MAX_ENTRIES = 100_000
MAX_NAME_BYTES = 3000
MAX_DEPTH = 100
LEVEL = 3
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorkspaceTooLarge(HarnessError):
    """The agent left more in its workspace than is kept."""


@dataclass
class _Budget:
    """What is left of the caps."""

    max_bytes: int
    max_entries: int
    used_bytes: int = 0
    entries: int = 0

    def take(self, name: str, size: int) -> None:
        if len(os.fsencode(name)) > MAX_NAME_BYTES or name.count("/") > MAX_DEPTH:
            raise WorkspaceTooLarge(f"the workspace is nested too deep: {name[:80]!r}…")
        self.entries += 1
        self.used_bytes += size
        if self.entries > self.max_entries:
            raise WorkspaceTooLarge(f"the workspace holds more than {self.max_entries} files and folders")
        if self.used_bytes > self.max_bytes:
            raise WorkspaceTooLarge(
                f"the workspace holds more than {self.max_bytes} bytes: {name!r} has {size}, {self.used_bytes} so far"
            )


def snapshot(workspace: Path, target: Path, *, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES) -> None:
    """Writes the workspace to `target`, a .tar.zst that is there complete or not at all.

    End everything inside the sandbox first, so that the files hold still.

    Raises:
        WorkspaceTooLarge: more than max_bytes (apparent sizes), max_entries, or MAX_DEPTH folders in each other.
        SandboxError: a file changed meanwhile, or the host can't read it.
    """
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    budget = _Budget(max_bytes, max_entries)
    root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with partial.open("wb") as file:
            compressor = zstandard.ZstdCompressor(level=LEVEL)
            with compressor.stream_writer(file, closefd=False) as stream, _tar(stream) as tar:
                _add_folder(tar, root, "", budget)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        raise SandboxError(f"cannot snapshot {workspace} to {target}: {error}") from error
    finally:
        os.close(root)
        partial.unlink(missing_ok=True)


@contextmanager
def _tar(stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        yield tar


def _add_folder(tar: tarfile.TarFile, folder: int, prefix: str, budget: _Budget) -> None:
    for name in sorted(os.listdir(folder)):
        about = os.lstat(name, dir_fd=folder)
        entry = tarfile.TarInfo(prefix + name)
        entry.mode, entry.mtime = about.st_mode & 0o777, about.st_mtime
        if stat.S_ISDIR(about.st_mode):
            budget.take(entry.name, 0)
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
            with _opened(name, folder, _FOLDER) as inner:
                _add_folder(tar, inner, f"{prefix}{name}/", budget)
        elif stat.S_ISLNK(about.st_mode):
            budget.take(entry.name, 0)
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
            tar.addfile(entry)
        elif stat.S_ISREG(about.st_mode):
            _add_file(tar, entry, name, folder, budget)


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, name: str, folder: int, budget: _Budget) -> None:
    with _opened(name, folder, _FILE) as descriptor, open(descriptor, "rb", closefd=False) as content:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise SandboxError(f"{entry.name!r} changed while the snapshot was made")
        budget.take(entry.name, about.st_size)
        entry.size = about.st_size
        tar.addfile(entry, content)


@contextmanager
def _opened(name: str, folder: int, flags: int) -> Iterator[int]:
    """Opens an entry of a folder, even one whose owner, our uid, took away its own rights."""
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        finally:
            os.close(handle)
        descriptor = os.open(name, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def restore(target: Path, directory: Path, *, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES) -> None:
    """Unpacks a snapshot into `directory`, which must be empty or missing.

    Raises:
        SandboxError: not a snapshot of ours: a name that leads outside, a device, a link with several names.
        WorkspaceTooLarge: it unpacks to more than the caps.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise SandboxError(f"cannot restore into {directory}: it is not empty")
    budget = _Budget(max_bytes, max_entries)
    links: list[tuple[Path, str]] = []
    try:
        with (
            target.open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            for entry in tar:
                budget.take(entry.name, entry.size)
                _unpack(tar, entry, directory, links)
        for path, destination in links:
            path.symlink_to(destination)
    except (OSError, tarfile.TarError, zstandard.ZstdError) as error:
        raise SandboxError(f"cannot restore {target}: {error}") from error


def _unpack(tar: tarfile.TarFile, entry: tarfile.TarInfo, directory: Path, links: list[tuple[Path, str]]) -> None:
    name = PurePosixPath(entry.name)
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise SandboxError(f"the snapshot holds a name that leads outside: {entry.name!r}")
    path = directory / name
    if entry.isdir():
        path.mkdir()
        path.chmod(entry.mode & 0o777 | 0o700)
    elif entry.issym():
        links.append((path, entry.linkname))
    elif entry.isreg() and (content := tar.extractfile(entry)) is not None:
        with path.open("xb") as file:
            while chunk := content.read(1 << 20):
                file.write(chunk)
            os.fchmod(file.fileno(), entry.mode & 0o777)
        os.utime(path, (entry.mtime, entry.mtime))
    else:
        raise SandboxError(f"the snapshot holds what none of ours does: {entry.name!r}, type {entry.type!r}")

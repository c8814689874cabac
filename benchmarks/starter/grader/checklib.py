"""What Starter's graders read with. Runs inside the grading sandbox: standard library only.

`Workspace` shows what the agent left (the snapshot) beside what it was given (pristine copies that only the grader
has). Every reader raises on what it cannot read, and a part that raises scores 0: nothing an agent writes can crash a
grader. Symlinks are refused, so a link can't borrow a file of the grader's own.
"""

from __future__ import annotations

import csv
import json
import os
import stat
from pathlib import Path
from typing import Any

MAX_BYTES = 4_000_000
"""A file beyond this is nothing that a task asks for."""

BY_PRODUCTS = frozenset({"__pycache__", ".pytest_cache"})
"""Directories that running programs leaves behind; never counted as a change."""


class Workspace:
    """The agent's workspace, and the pristine one beside it.

    Args:
        root: the snapshot.
        given: the files as the task handed them out.
        spec: the task instance's own parameters.
        left_out: what the snapshot could not hold (devices, links to the outside); counts as changed.
    """

    def __init__(self, root: Path, given: Path, spec: dict[str, Any], left_out: frozenset[str]) -> None:
        self.root, self.spec, self.left_out = root, spec, left_out
        self._given = given

    def text(self, path: str) -> str:
        """A regular UTF-8 file of the agent's, reached through no symlink."""
        return _read(self.root, path).decode()

    def lines(self, path: str) -> list[str]:
        """Its lines; one final line end is optional."""
        return _lines(self.text(path))

    def json(self, path: str) -> Any:
        """Its JSON value."""
        return json.loads(self.text(path))

    def rows(self, path: str) -> list[dict[str, str]]:
        """Its CSV rows."""
        return _rows(self.text(path))

    def header(self, path: str) -> list[str]:
        """Its CSV column names."""
        return next(csv.reader(self.lines(path)[:1]))

    def given_text(self, path: str) -> str:
        """A file as it was handed out."""
        return _read(self._given, path).decode()

    def given_lines(self, path: str) -> list[str]:
        """Its lines."""
        return _lines(self.given_text(path))

    def given_json(self, path: str) -> Any:
        """Its JSON value."""
        return json.loads(self.given_text(path))

    def given_rows(self, path: str) -> list[dict[str, str]]:
        """Its CSV rows."""
        return _rows(self.given_text(path))

    def given_files(self, folder: str = "") -> list[str]:
        """Paths handed out below a folder, sorted."""
        return sorted(p for p in _files(self._given) if p.startswith(folder))

    def files(self, folder: str = "") -> list[str]:
        """Paths that are there now below a folder, sorted; links and special files included."""
        return sorted(p for p in _files(self.root) if p.startswith(folder))

    def changed(self) -> frozenset[str]:
        """Paths that were created, changed or removed."""
        before, after = _files(self._given), _files(self.root)
        touched = {p for p in before & after if not self._same(p)}
        return frozenset(touched | (before ^ after) | self.left_out)

    def _same(self, path: str) -> bool:
        try:
            return _read(self.root, path) == _read(self._given, path)
        except (OSError, ValueError):
            return False


def _read(root: Path, path: str) -> bytes:
    """The bytes of root/path.

    Raises:
        ValueError: a symlink is on the way, or it is no regular file, or too large.
        OSError: it isn't there or can't be read.
    """
    full = root / path
    if Path(os.path.realpath(full)) != Path(os.path.realpath(root)) / path:
        raise ValueError(f"{path}: reached through a symlink")
    status = os.lstat(full)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
        raise ValueError(f"{path}: not a regular file of at most {MAX_BYTES} bytes")
    return full.read_bytes()


def _files(root: Path) -> set[str]:
    """Every path below root that is no directory, relative; by-products left out, links not followed."""
    found: set[str] = set()
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in BY_PRODUCTS]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        found.update(os.path.relpath(os.path.join(folder, name), root) for name in [*names, *links])
    return found


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines(), strict=True))

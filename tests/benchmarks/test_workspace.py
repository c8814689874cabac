"""Copying a workspace never follows, opens or grants what an agent planted there."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path, PurePosixPath

import pytest

from mixharness.benchmarks import workspace
from mixharness.benchmarks.workspace import CopyLimits, copy_workspace, overlay_files, write_files
from mixharness.errors import ConfigError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    write_files(folder, {"a.txt": b"a", "deep/er/b.bin": bytes(range(256)), "deep/run.sh": b"#!/bin/sh\n"})
    (folder / "deep/run.sh").chmod(0o755)
    return folder


def tree(root: Path) -> dict[str, bytes | str]:
    """Relative path → content, or where a link leads."""
    found: dict[str, bytes | str] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def test_plain_files_are_copied_whole(source: Path, tmp_path: Path) -> None:
    (source / "empty").mkdir()
    assert copy_workspace(source, tmp_path / "copy") == ()
    assert tree(tmp_path / "copy") == tree(source)
    assert (tmp_path / "copy/empty").is_dir()
    assert (tmp_path / "copy/deep/run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "copy/a.txt").stat().st_mtime_ns == (source / "a.txt").stat().st_mtime_ns


@pytest.mark.parametrize(
    ("link", "leads_to", "kept"),
    [
        ("l", "a.txt", True),
        ("l", "deep/er", True),
        ("deep/l", "../a.txt", True),
        ("deep/er/l", "../../a.txt", True),
        ("l", "/workspace/a.txt", True),
        ("l", "nowhere", True),
        ("l", "/usr/bin/python3", True),
        ("l", "../secret", False),
        ("deep/l", "../../secret", False),
        ("deep/er/l", "../../../grader/check.py", False),
        ("l", "/grader/check.py", False),
        ("l", "/etc/passwd", False),
        ("l", "/proc/self/cwd/grader", False),
        ("l", "/workspace/../grader", False),
        ("l", "/usr/../grader", False),
        ("l", "deep/../../grader", False),
        ("l", "a/../b", False),
        ("l", "/", False),
        ("l", "/workspacex/a", False),
    ],
)
def test_only_links_that_stay_inside_are_kept(
    source: Path, tmp_path: Path, link: str, leads_to: str, kept: bool
) -> None:
    (source / link).symlink_to(leads_to)
    assert copy_workspace(source, tmp_path / "copy") == (() if kept else (link,))
    assert (tmp_path / "copy" / link).is_symlink() is kept
    assert not kept or os.readlink(tmp_path / "copy" / link) == leads_to


def test_a_chain_of_links_cannot_leave(source: Path, tmp_path: Path) -> None:
    (source / "here").symlink_to(".")
    (source / "out").symlink_to("here/../..")
    (source / "up").symlink_to("deep/er")
    (source / "two").symlink_to("up/../../../x")
    assert copy_workspace(source, tmp_path / "copy") == ("out", "two")


def test_links_count_from_the_tasks_own_workdir(source: Path, tmp_path: Path) -> None:
    (source / "l").symlink_to("/srv/agent/workspace/a.txt")
    assert copy_workspace(source, tmp_path / "one", "/srv/agent/workspace") == ()
    assert copy_workspace(source, tmp_path / "two") == ("l",)


def test_special_files_are_left_out_and_listed(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(source)
        listener.bind("sock")
        os.chdir(here)
        assert copy_workspace(source, tmp_path / "copy") == ("pipe", "sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a device")
def test_devices_are_never_opened(source: Path, tmp_path: Path) -> None:
    os.mknod(source / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert copy_workspace(source, tmp_path / "copy") == ("null",)


def test_set_id_bits_are_dropped_and_the_copy_is_readable(source: Path, tmp_path: Path) -> None:
    (source / "a.txt").chmod(0o6755)
    (source / "deep").chmod(0o1700)
    copy_workspace(source, tmp_path / "copy")
    assert (tmp_path / "copy/a.txt").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "copy/deep").stat().st_mode & 0o7777 == 0o700


def test_a_file_that_claims_to_be_huge_is_left_out(source: Path, tmp_path: Path) -> None:
    with (source / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert copy_workspace(source, tmp_path / "copy") == ("huge",)
    assert "a.txt" in tree(tmp_path / "copy")


def test_limits_hold_for_the_sum_the_number_and_the_depth(source: Path, tmp_path: Path) -> None:
    assert copy_workspace(source, tmp_path / "1", limits=CopyLimits(total_bytes=200)) == ("deep/er/b.bin",)
    assert copy_workspace(source, tmp_path / "2", limits=CopyLimits(entries=2)) == ("deep/er", "deep/run.sh")
    assert copy_workspace(source, tmp_path / "3", limits=CopyLimits(depth=1)) == ("deep/er",)


def test_names_that_are_no_utf8_survive(source: Path, tmp_path: Path) -> None:
    with open(os.fsencode(source) + b"/\xff\n\"'.txt", "wb") as file:
        file.write(b"x")
    copy_workspace(source, tmp_path / "copy")
    assert b"\xff\n\"'.txt" in os.listdir(os.fsencode(tmp_path / "copy"))


def test_a_directory_swapped_for_a_link_meanwhile_is_not_followed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "outside", {"secret": b"s"})
    look = os.stat

    def racing(name: str, **options: object) -> os.stat_result:
        status = look(name, **options)  # type: ignore[call-overload]
        if name == "deep":
            os.rename(source / "deep", tmp_path / "moved")
            (source / "deep").symlink_to(tmp_path / "outside")
        return status  # type: ignore[no-any-return]

    monkeypatch.setattr(workspace.os, "stat", racing)
    assert copy_workspace(source, tmp_path / "copy") == ("deep",)
    assert not (tmp_path / "copy/deep").exists()


def test_a_full_disk_is_our_failure_not_the_workspaces(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(workspace.os, "utime", full)
    with pytest.raises(OSError, match="No space"):
        copy_workspace(source, tmp_path / "copy")


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", ""])
def test_a_tasks_files_stay_inside(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="outside"):
        write_files(tmp_path / "w", {name: b""})


def test_an_overlay_replaces_what_the_agent_put_in_its_place(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write_files(outside, {"check.py": b"kept"})
    (source / "reward").symlink_to(outside)
    write_files(source / "other", {"planted.py": b""})
    overlay_files(source, {"reward/check.py": b"ours", "other/new.py": b"new", "a.txt": b"replaced"})
    assert (outside / "check.py").read_bytes() == b"kept"
    assert not (source / "reward").is_symlink()
    seen = tree(source)
    assert seen["reward/check.py"] == b"ours" and seen["other/new.py"] == b"new" and seen["a.txt"] == b"replaced"
    assert "other/planted.py" not in seen


def test_pure_paths_only() -> None:
    copier = workspace._Copier(PurePosixPath("/workspace"), CopyLimits())
    assert copier.stays_inside(PurePosixPath("x/y"), 0)
    assert not copier.stays_inside(PurePosixPath(".."), 0)

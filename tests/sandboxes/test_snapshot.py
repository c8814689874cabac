"""Snapshots: round trip, hostile content, caps, atomicity."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
import zstandard

from mixharness.errors import SandboxError
from mixharness.sandboxes.snapshot import WorkspaceTooLarge, restore, snapshot


def tree(root: Path) -> dict[str, object]:
    """Path → mode and content, link target or "dir"."""
    found: dict[str, object] = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            key = os.fsencode(path.relative_to(root)).decode(errors="backslashreplace")
            if path.is_symlink():
                found[key] = f"-> {os.readlink(path)}"
            elif path.is_dir():
                found[key] = "dir"
            else:
                found[key] = (stat.S_IMODE(path.stat().st_mode), path.read_bytes(), int(path.stat().st_mtime))
    return found


def test_round_trip(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "a/empty").mkdir(parents=True)
    (work / "a/data.bin").write_bytes(os.urandom(300_000))
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "naïve ✓.txt").write_text("ü")
    with open(os.path.join(os.fsencode(work), b"bad-\xff"), "wb") as file:
        file.write(b"bytes")
    (work / "link").symlink_to("a/data.bin")
    (work / "twin").hardlink_to(work / "run.sh")
    os.utime(work / "run.sh", (1_000_000_000, 1_000_000_000))
    snapshot(work, tmp_path / "s.tar.zst")
    restore(tmp_path / "s.tar.zst", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(work)
    assert (tmp_path / "back/twin").stat().st_nlink == 1


def test_links_out_of_the_workspace_stay_links(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("host secret")
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").symlink_to(secret / "key")
    (work / "folder").symlink_to(secret)
    (work / "up").symlink_to("../secret/key")
    snapshot(work, tmp_path / "s.tar.zst")
    raw = zstandard.ZstdDecompressor().decompressobj().decompress((tmp_path / "s.tar.zst").read_bytes())
    assert b"host secret" not in raw
    restore(tmp_path / "s.tar.zst", tmp_path / "deeper/back")
    assert os.readlink(tmp_path / "deeper/back/folder") == str(secret)


def test_devices_fifos_and_sockets_are_left_out_and_never_opened(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    os.mkfifo(work / "fifo")  # opening it would hang
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(work / "s"))
    if os.geteuid() == 0:
        os.mknod(work / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    (work / "kept").write_text("x")
    snapshot(work, tmp_path / "s.tar.zst")
    restore(tmp_path / "s.tar.zst", tmp_path / "back")
    assert set(tree(tmp_path / "back")) == {"kept"}


def test_set_id_bits_go(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "su").write_text("x")
    (work / "su").chmod(0o6755)
    snapshot(work, tmp_path / "s.tar.zst")
    restore(tmp_path / "s.tar.zst", tmp_path / "back")
    assert stat.S_IMODE((tmp_path / "back/su").stat().st_mode) == 0o755


@pytest.mark.parametrize("bytes_, entries", [(1000, 100), (10**9, 3)])
def test_caps_name_the_excess_and_leave_nothing(tmp_path: Path, bytes_: int, entries: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for i in range(4):
        (work / f"f{i}").write_bytes(b"x" * 400)
    with pytest.raises(WorkspaceTooLarge, match=str(bytes_ if bytes_ == 1000 else entries)):
        snapshot(work, tmp_path / "s.tar.zst", max_bytes=bytes_, max_entries=entries)
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_a_sparse_file_is_refused_by_its_apparent_size(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with (work / "sparse").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(WorkspaceTooLarge, match="sparse"):
        snapshot(work, tmp_path / "s.tar.zst")


def test_bottomless_nesting_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    folder = os.open(work, os.O_RDONLY)
    for _ in range(150):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    with pytest.raises(WorkspaceTooLarge, match="deep"):
        snapshot(work, tmp_path / "s.tar.zst")
    subprocess.run(["rm", "-rf", work], check=True)  # deeper than shutil follows


def test_a_failed_snapshot_keeps_the_old_one(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "f").write_text("one")
    snapshot(work, tmp_path / "s.tar.zst")
    before = (tmp_path / "s.tar.zst").read_bytes()
    (work / "f").write_text("two" * 100)
    with pytest.raises(WorkspaceTooLarge):
        snapshot(work, tmp_path / "s.tar.zst", max_bytes=10)
    assert (tmp_path / "s.tar.zst").read_bytes() == before


def forged(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for entry, content in entries:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    path.write_bytes(zstandard.compress(raw.getvalue()))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "bad",
    [
        entry("../evil"),
        entry("/tmp/evil-absolute"),
        entry("a/../../evil"),
        entry("hard", tarfile.LNKTYPE, "/etc/passwd"),
        entry("null", tarfile.CHRTYPE),
        entry("fifo", tarfile.FIFOTYPE),
    ],
    ids=lambda made: made.name,
)
def test_restore_refuses_what_no_snapshot_of_ours_holds(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with pytest.raises(SandboxError):
        restore(forged(tmp_path / "s.tar.zst", (bad, b"")), tmp_path / "deep/back")
    assert not (tmp_path / "deep/evil").exists() and not (tmp_path / "evil").exists()


def test_restore_writes_nothing_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link, file = entry("way", tarfile.SYMTYPE, str(outside)), entry("way/evil")
    with pytest.raises(SandboxError):
        restore(forged(tmp_path / "s.tar.zst", (link, b""), (file, b"x")), tmp_path / "back")
    assert list(outside.iterdir()) == []


def test_restore_refuses_a_bomb_rubbish_and_a_full_directory(tmp_path: Path) -> None:
    bomb = forged(tmp_path / "bomb", (entry("zeros"), bytes(5_000_000)))
    with pytest.raises(WorkspaceTooLarge):
        restore(bomb, tmp_path / "back", max_bytes=1_000_000)
    (tmp_path / "rubbish").write_bytes(b"not a snapshot")
    with pytest.raises(SandboxError, match="rubbish"):
        restore(tmp_path / "rubbish", tmp_path / "back2")
    with pytest.raises(SandboxError, match="not empty"):
        restore(bomb, tmp_path)

"""The host's half of exec and control: output cutting, request encoding, hostile replies; owners; control groups."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest

from mixharness.errors import SandboxError
from mixharness.sandboxes import cgroups, owner
from mixharness.sandboxes.base import SandboxLimits
from mixharness.sandboxes.control import Control, encode_request
from mixharness.sandboxes.execution import Collector
from mixharness.sandboxes.listener import listen


async def collected(data: bytes, limit: int) -> str:
    collector = Collector(limit)
    write = collector.open()
    with open(write, "wb") as pipe:
        await asyncio.to_thread(pipe.write, data)
    await asyncio.sleep(0.05)
    collector.drain()
    collector.close()
    return collector.text()


@pytest.mark.parametrize("size", [0, 1, 9, 10])
async def test_output_within_the_limit_is_whole(size: int) -> None:
    assert await collected(b"x" * size, 10) == "x" * size


@pytest.mark.parametrize("size", [11, 5000, 2_000_000])
async def test_output_beyond_it_keeps_both_ends(size: int) -> None:
    data = b"start" + b"." * (size - 10) + b"-end!"
    text = await collected(data, 10)
    assert text == f"start\n… {size - 10} bytes cut …\n-end!"


def test_requests_are_encoded_exactly() -> None:
    fd = encode_request(["a", "", "ü\udcff"], {"A": "1=2", "B": ""})
    with open(fd, "rb"):
        assert os.pread(fd, 1000, 0) == b"3\0a\0\0\xc3\xbc\xff\0A=1=2\0B="


@pytest.mark.parametrize("argv, env", [([], {}), (["a\0b"], {}), (["a"], {"A=B": "1"}), (["a"], {"": "1"})])
def test_requests_that_cannot_be_encoded(argv: list[str], env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="argv must not be empty"):
        encode_request(argv, env)


class Peer:
    """A PID 1 that has gone over to the enemy."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.control = Control(ours)

    def answer(self, message: bytes, fds: tuple[int, ...] = ()) -> None:
        socket.send_fds(self.sock, [message], list(fds))


async def test_the_peers_pid_comes_from_the_kernel() -> None:
    peer = Peer()
    peer.answer(b"hello\0" + b"12345")
    assert await peer.control.hello(1) == os.getpid()
    peer.control.close()
    peer.sock.close()


async def test_rubbish_replies_change_nothing() -> None:
    peer = Peer()
    future = peer.control.order("kill")
    for message in (b"\0", b"done", b"done\x0099", b"exit\0\xff\0x", b"\xff" * 4000):
        peer.answer(message)
    with open(os.devnull) as file:
        peer.answer(b"done\x0098", (file.fileno(),))
    peer.answer(b"done\x001")
    assert (await future).kind == "done"
    peer.sock.close()
    with pytest.raises(SandboxError, match="ended"):
        await peer.control.hello(1)


async def test_an_end_fails_what_waits() -> None:
    peer = Peer()
    future = peer.control.order("kill")
    peer.sock.close()
    with pytest.raises(SandboxError, match="ended"):
        await future
    with pytest.raises(SandboxError, match="ended"):
        peer.control.order("kill")


async def test_only_a_listening_socket_on_that_port_is_taken() -> None:
    async def offered(fd: int | None) -> str:
        peer = Peer()
        waiting = asyncio.create_task(listen(peer.control, 8080))
        await asyncio.sleep(0)
        peer.answer(b"done\x001", () if fd is None else (fd,))
        with pytest.raises(SandboxError) as error:
            await waiting
        peer.control.close()
        peer.sock.close()
        return str(error.value)

    with open(os.devnull) as file, socket.socket() as plain, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert "no listening socket" in await offered(None)
        for fd in (file.fileno(), plain.fileno(), other.fileno()):
            assert "something else" in await offered(fd)


def test_owners() -> None:
    assert not owner.gone(owner.mark())
    with subprocess.Popen(["sleep", "60"]) as process:
        marked = owner.mark(process.pid)
        assert not owner.gone(marked)
        process.kill()
    assert owner.gone(marked)
    pid, start, *where = owner.mark().split(".")
    assert owner.gone(".".join([pid, str(int(start) - 1), *where]))  # the pid of one that is gone, used again
    assert not owner.gone(f"{pid}.{start}.otherboot.1")  # another machine's: nothing is known
    assert not owner.gone("") and not owner.gone("rubbish")


def test_version_2_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a folder that stands for a version 2 hierarchy: the kernel's part, making the files, is left out."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    group = cgroups.Group("mixharness-x", SandboxLimits(memory_mb=3, pids=7, cpus=0.5))
    assert group.memory.parent == tmp_path / "mixharness" and group.memory.name.startswith("mixharness-x@")
    settings = {path.name: path.read_text() for path in group.memory.iterdir()}
    assert settings == {"memory.max": str(3 * 2**20), "pids.max": "7", "cpu.max": "50000 100000"}
    assert (tmp_path / "mixharness/cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    group.add(123)
    assert (group.memory / "cgroup.procs").read_text() == "123"
    (group.memory / "memory.events").write_text("low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert cgroups.oom_kills(group.memory) == 3


def test_no_right_to_make_groups_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "missing")
    assert "control groups" in cgroups.allowed()

"""The host's end of a sandbox's control socket: orders to its PID 1 (see init.py) and what comes back.

Programs inside can't reach this socket. Still, nothing read from it is trusted further than text and numbers, and a
socket handed out of the sandbox is checked before it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from mixharness.errors import SandboxError

MESSAGE_BYTES = 4096
REPLY_S = 20.0
_CREDENTIALS = struct.Struct("3i")


class Control:
    """One sandbox's control socket, used from one event loop.

    Args:
        sock: connected SOCK_SEQPACKET unix socket with SO_PASSCRED set; owned from now on.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[bytes, asyncio.Future[Reply]] = {}
        self._hello: asyncio.Future[int] = self._loop.create_future()
        self._closed = False
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def closed(self) -> bool:
        """PID 1 ended, or `close` was called."""
        return self._closed

    async def hello(self, timeout_s: float) -> int:
        """Waits until PID 1 runs; its pid as this process sees it.

        Raises:
            SandboxError: it ended first, or took too long.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(self._hello), timeout_s)
        except TimeoutError:
            raise SandboxError(f"the sandbox's first process gave no sign within {timeout_s:g} s") from None

    def order(self, verb: str, *fields: str, fds: Sequence[int] = ()) -> asyncio.Future[Reply]:
        """Sends one order; the future holds the reply.

        Raises:
            SandboxError: the sandbox has ended (also through the future).
        """
        if self._closed:
            raise SandboxError("the sandbox has ended")
        ident = str(next(self._numbers)).encode()
        future: asyncio.Future[Reply] = self._loop.create_future()
        message = b"\0".join([verb.encode(), ident, *(field.encode() for field in fields)])
        try:
            socket.send_fds(self._sock, [message], list(fds))
        except OSError as error:
            raise SandboxError(f"the sandbox takes no orders: {error}") from error
        self._waiting[ident] = future
        return future

    async def ask(self, verb: str, *fields: str) -> Reply:
        """`order`, and waits for the reply; a refusal is an error."""
        try:
            reply = await asyncio.wait_for(self.order(verb, *fields), REPLY_S)
        except TimeoutError:
            raise SandboxError(f"the sandbox did not answer {verb!r} within {REPLY_S:g} s") from None
        if reply.kind != "done":
            raise SandboxError(f"the sandbox refused {verb} {' '.join(fields)}: {reply.text}")
        return reply

    def close(self) -> None:
        """PID 1 ends on this, and everything inside with it."""
        self._end("the sandbox was closed")

    def _readable(self) -> None:
        try:
            message, fds, pid = _receive(self._sock)
        except BlockingIOError:
            return
        except OSError:
            message, fds, pid = b"", [], 0
        if not message:
            self._end("the sandbox's first process has ended")
            return
        kind, *fields = message.split(b"\0")
        if kind == b"hello" and not self._hello.done():
            self._hello.set_result(pid)
            return
        if kind == b"failed":
            _fail(self._hello, f"the sandbox could not be confined: {b' '.join(fields).decode(errors='replace')}")
            return
        future = self._waiting.pop(fields[0], None) if fields else None
        if future is None or future.done():
            for fd in fds:
                os.close(fd)
            return
        text = b" ".join(fields[1:]).decode(errors="replace")
        future.set_result(Reply(kind.decode(errors="replace"), text, fds[0] if fds else None))

    def _end(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._sock.fileno())
        with contextlib.suppress(OSError):  # the peer is gone
            self._sock.shutdown(socket.SHUT_RDWR)  # a forked child may hold a copy: closing alone tells PID 1 nothing
        self._sock.close()
        for future in self._waiting.values():
            _fail(future, reason)
        _fail(self._hello, reason)
        self._waiting.clear()


def _fail(future: asyncio.Future[Any], reason: str) -> None:
    if not future.done() and not future.get_loop().is_closed():
        future.set_exception(SandboxError(reason))
        future.exception()  # marks it retrieved: nobody may be waiting


class Reply:
    """What PID 1 answered: kind (done, exit, fail), text, and a descriptor if it sent one."""

    def __init__(self, kind: str, text: str, fd: int | None) -> None:
        self.kind, self.text, self.fd = kind, text, fd


def encode_request(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """A file holding argv and environment, as init.py reads it; the caller closes it.

    Raises:
        ValueError: a string holds a NUL, or a variable's name "=".
    """
    fields = [str(len(argv)), *argv, *(f"{name}={value}" for name, value in env.items())]
    if not argv or any("\0" in field for field in fields) or any("=" in name or not name for name in env):
        raise ValueError(f"argv must not be empty, hold NUL, nor a variable's name '=': {list(argv)[:4]}")
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write("\0".join(fields).encode(errors="surrogateescape"))
    return fd


def _receive(sock: socket.socket) -> tuple[bytes, list[int], int]:
    """One message, the descriptors in it, and the sender's pid as the kernel translates it to our namespace."""
    space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(array("i").itemsize)
    message, ancillary, _, _ = sock.recvmsg(MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    fds, pid = array("i"), 0
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(data)[0]
    return message, list(fds), pid

"""One program run through a control socket: its pipes, its time limit, its result."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from mixharness.errors import SandboxError
from mixharness.sandboxes.base import ExecResult
from mixharness.sandboxes.control import Control, Reply, encode_request

KILL_S = 10.0
_CHUNK = 65536


class Memory(Protocol):
    """What a sandbox knows about its memory limit."""

    def oom_kills(self) -> int:
        """How often the limit killed something so far; 0 where it can't be seen."""
        ...

    async def ended_the_sandbox(self) -> bool:
        """Whether the sandbox has ended because the limit killed PID 1: the program's doing, not ours."""
        ...


async def run(
    control: Control,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: bytes | None,
    timeout_s: float | None,
    output_limit: int,
    memory: Memory,
) -> ExecResult:
    """Runs argv inside and waits for its end; daemons that keep its pipes open don't delay it.

    At the time limit, or when the caller is cancelled, everything inside is killed.

    Raises:
        SandboxError: the sandbox ended.
    """
    started, before = time.monotonic(), memory.oom_kills()
    streams = Streams(stdin, output_limit)
    try:
        future = streams.start(control, argv, env)
        reply = await _finish(control, future, timeout_s)
        oom = memory.oom_kills() > before
    except SandboxError:
        if not await memory.ended_the_sandbox():
            raise
        reply, oom = Reply("exit", "-9", None), True
    finally:
        streams.drain()
        streams.close()
    wall_s = time.monotonic() - started
    out, err = streams.stdout.text(), streams.stderr.text()
    if reply is None:
        return ExecResult(None, out, err, timed_out=True, oom=oom, wall_s=wall_s)
    if reply.kind == "fail":
        return ExecResult(126, out, f"{err}cannot start {argv[0]}: {reply.text}\n", wall_s=wall_s)
    status = int(reply.text)
    code = status if status >= 0 else 128 - status
    return ExecResult(code, out, err, oom=oom, wall_s=wall_s)


async def _finish(control: Control, future: asyncio.Future[Reply], timeout_s: float | None) -> Reply | None:
    """The program's end; None when it was killed at its time limit."""
    try:
        done, _ = await asyncio.wait({future}, timeout=timeout_s)
        if done:
            return future.result()
        await control.ask("kill")
        done, _ = await asyncio.wait({future}, timeout=KILL_S)
        if not done:
            raise SandboxError(f"a killed program was still there after {KILL_S:g} s")
        return None
    except asyncio.CancelledError:
        if not control.closed:
            control.order("kill")
        raise


class Streams:
    """The three standard streams of one program: pipes whose other ends go inside."""

    def __init__(self, stdin: bytes | None, output_limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._stdin = memoryview(stdin) if stdin else None
        self._feed: int | None = None
        self.stdout, self.stderr = Collector(output_limit), Collector(output_limit)

    def start(self, control: Control, argv: Sequence[str], env: Mapping[str, str]) -> asyncio.Future[Reply]:
        """Opens the pipes and sends the order."""
        inside = [encode_request(argv, env)]
        try:
            inside.append(self._open_stdin())
            inside.extend((self.stdout.open(), self.stderr.open()))
            future = control.order("exec", fds=inside)
        finally:
            for fd in inside:
                os.close(fd)
        return future

    def _open_stdin(self) -> int:
        if self._stdin is None:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        read, self._feed = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._feed, False)
        self._loop.add_writer(self._feed, self._write)
        return read

    def _write(self) -> None:
        assert self._stdin is not None and self._feed is not None
        try:
            sent = os.write(self._feed, self._stdin[:_CHUNK])
        except BlockingIOError:
            return
        except BrokenPipeError:  # the program doesn't want it
            sent = len(self._stdin)
        self._stdin = self._stdin[sent:]
        if not self._stdin:
            self._close_feed()

    def _close_feed(self) -> None:
        if self._feed is not None:
            self._loop.remove_writer(self._feed)
            os.close(self._feed)
            self._feed = None

    def drain(self) -> None:
        """Takes what the ended program left in its pipes."""
        self.stdout.drain()
        self.stderr.drain()

    def close(self) -> None:
        """Closes all descriptors of ours."""
        self._close_feed()
        self.stdout.close()
        self.stderr.close()


class Collector:
    """Reads one pipe to its end, keeping the first and the last half of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._half = max(limit // 2, 1)
        self._head, self._tail = bytearray(), bytearray()
        self._seen = 0
        self._fd: int | None = None

    def open(self) -> int:
        """The writing end, to be closed by the caller."""
        self._fd, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._readable)
        return write

    def _readable(self) -> bool:
        assert self._fd is not None
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._seen += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 4 * self._half + _CHUNK:
            del self._tail[: -self._half]
        return True

    def drain(self) -> None:
        """Reads what is there without waiting, at most a pipe's capacity: a daemon may go on writing for ever."""
        for _ in range(32):
            if self._fd is None or not self._readable():
                return

    def close(self) -> None:
        """Stops reading."""
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def text(self) -> str:
        """What was kept, decoded with replacement; a cut is named."""
        kept = len(self._head) + min(len(self._tail), self._half)
        tail = bytes(self._tail[-self._half :])
        cut = f"\n… {self._seen - kept} bytes cut …\n".encode() if self._seen > kept else b""
        return (bytes(self._head) + cut + tail).decode(errors="replace")

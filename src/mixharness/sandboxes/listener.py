"""A listening socket inside a sandbox's network namespace, held by this process: the only way out.

A socket belongs to the network namespace it was made in, whoever holds it. So PID 1 opens it inside and hands it
over; nothing has to forward, no privilege is needed, and the programs inside reach it at 127.0.0.1:port.
"""

from __future__ import annotations

import os
import socket

from mixharness.errors import SandboxError
from mixharness.sandboxes.control import Control


async def listen(control: Control, port: int) -> socket.socket:
    """The socket, non-blocking, accepting already.

    Raises:
        SandboxError: the port is taken inside, or what came back isn't such a socket.
    """
    reply = await control.ask("listen", str(port))
    if reply.fd is None:
        raise SandboxError("the sandbox handed over no listening socket")
    sock = _adopt(reply.fd)
    try:
        accepting = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if sock.family != socket.AF_INET or not accepting or sock.getsockname() != ("127.0.0.1", port):
            raise SandboxError(f"the sandbox handed over something else than a listening socket: {sock}")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by what it accepts
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _adopt(fd: int) -> socket.socket:
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        os.close(fd)
        raise SandboxError(f"the sandbox handed over something else than a socket: {error}") from error

"""uvicorn's HTTP protocol on a given listening socket, inside the running loop.

No uvicorn.Server: it installs signal handlers and ticks ten times a second, and there is one server per sandbox.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

MAX_CONNECTIONS = 256
"""Per server; a sandbox that opens more gets the surplus closed, so that it can't use up our descriptors."""
_MAX_HEADER_BYTES = 256 * 1024
_KEEP_ALIVE_S = 3600
"""Clients keep their connection over long tool runs; a stale one costs them a retry."""


class _Protocol(HttpToolsProtocol):
    """uvicorn's, which also shows the app its transport and bounds connections and headers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {"transport": transport}
        connection = transport.get_extra_info("socket")
        if connection.family in (socket.AF_INET, socket.AF_INET6):  # asyncio does so only for sockets it made itself
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if sum(len(key) + len(item) for key, item in self.headers[-1:]) > _MAX_HEADER_BYTES or len(self.headers) > 256:
            self.transport.abort()


class Server:
    """A listening socket being served."""

    def __init__(self, server: asyncio.Server, state: ServerState) -> None:
        self._server, self._state = server, state

    async def aclose(self, grace_s: float = 1.0) -> None:
        """Stops listening; answers being sent get `grace_s` to end, then every connection is closed."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=grace_s)
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=grace_s)


async def start(app: Any, sock: socket.socket) -> Server:
    """Serves an ASGI app on a listening socket (TCP or unix) until `aclose`."""
    config = uvicorn.Config(
        app, http=_Protocol, ws="none", lifespan="off", log_config=None, access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S, proxy_headers=False, server_header=False, interface="asgi3",
    )  # fmt: skip
    config.load()
    state = ServerState()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Protocol(config=config, server_state=state, app_state={}), sock=sock)
    return Server(server, state)

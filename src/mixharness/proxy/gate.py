"""A weight update drains the engine first: no call in flight inside, new ones wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Counts calls that are with the engine; shut while anyone drains it."""

    def __init__(self) -> None:
        self._inside = self._drains = 0
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Held by a call while it is with the engine; entered only while nobody drains."""
        while self._drains:
            await self._open.wait()
        self._inside += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._idle.set()

    @asynccontextmanager
    async def drained(self) -> AsyncIterator[None]:
        """Held by a weight update; entered when the last call in flight has left."""
        self._drains += 1
        self._open.clear()
        try:
            while self._inside:
                await self._idle.wait()
            yield
        finally:
            self._drains -= 1
            if not self._drains:
                self._open.set()

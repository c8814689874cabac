"""The calls of one session in arrival order: immutable snapshots, and a version that rises with each change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from mixharness.trees.call import ModelCall


class CallLog:
    """Snapshots by index; replaced, never changed.

    Args:
        sink: told each call once it is final: no longer pending, its exchange over.
    """

    def __init__(self, sink: Callable[[ModelCall], None] | None = None) -> None:
        self._calls: list[ModelCall] = []
        self._open: set[int] = set()
        self._sink = sink
        self._change = asyncio.Event()
        self.version = 0
        self.changed_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, index: int) -> ModelCall:
        return self._calls[index]

    @property
    def snapshot(self) -> tuple[ModelCall, ...]:
        """All of them as they are now."""
        return tuple(self._calls)

    @property
    def open(self) -> frozenset[int]:
        """Calls whose exchange with the client is not over."""
        return frozenset(self._open)

    @property
    def used(self) -> int:
        """Calls that count against a limit: answered, pending, or failed with tokens sampled."""
        return sum(call.status != "failed" or call.sampled > 0 for call in self._calls)

    @property
    def sampled(self) -> int:
        """Tokens sampled so far."""
        return sum(call.sampled for call in self._calls)

    @property
    def promised(self) -> int:
        """The most tokens that pending calls may still sample."""
        return sum(call.sampling.max_tokens for call in self._calls if call.status == "pending")

    def add(self, call: ModelCall) -> None:
        """A new pending call."""
        self._calls.append(call)
        self.bump()

    def put(self, call: ModelCall) -> None:
        """Replaces a snapshot that is still pending, without telling anyone."""
        self._calls[call.index] = call

    def store(self, call: ModelCall) -> None:
        """Replaces a snapshot; stamps when it stopped being pending."""
        if call.status != "pending" and not call.finished:
            call = replace(call, finished=time.monotonic())
        self._calls[call.index] = call
        self.bump()
        if self._sink and call.status != "pending" and call.index not in self._open:
            self._sink(call)

    def fail(self, index: int, error: str) -> None:
        """A call without an answer."""
        self.store(replace(self._calls[index], status="failed", error=error))

    def open_exchange(self, index: int) -> None:
        """Its client waits for the answer."""
        self._open.add(index)

    def close_exchange(self, index: int, why: str) -> None:
        """Its exchange is over; with a reason, an answer already sampled was not delivered whole."""
        self._open.discard(index)
        call = self._calls[index]
        self.store(replace(call, status="failed", error=why) if why and call.status == "answered" else call)

    def bump(self) -> None:
        """Something changed: wakes who waits."""
        self.version += 1
        self.changed_at = time.monotonic()
        change, self._change = self._change, asyncio.Event()
        change.set()

    async def changed(self, since: int) -> int:
        """Waits until the version is above `since`; returns it."""
        while self.version <= since:
            await self._change.wait()
        return self.version

"""An engine whose answers are given by hand: calls wait until somebody answers them. It holds no model."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import numpy as np

from mixharness.engines.base import Completion, GenerateRequest, LogProbs, TokenIds
from mixharness.engines.codec import ChatCodec
from mixharness.errors import ConfigError, EngineError


class ManualEngine:
    """Parks every call until `answer` is called for it. All methods belong to one event loop's thread.

    Args:
        codec: messages to ids, for whoever answers.
        max_model_len: most tokens of prompt and completion together.
    """

    spec = "manual:"

    def __init__(self, codec: ChatCodec, max_model_len: int = 1 << 20) -> None:
        self.codec = codec
        self._max_model_len = max_model_len
        self._parked: dict[tuple[str, int], tuple[GenerateRequest, asyncio.Future[Completion]]] = {}
        self._arrived = asyncio.Event()
        self._closed = False

    @property
    def weight_version(self) -> int:
        """Always 0."""
        return 0

    @property
    def max_model_len(self) -> int:
        """As given."""
        return self._max_model_len

    def pending(self) -> tuple[GenerateRequest, ...]:
        """The calls that wait, oldest first."""
        return tuple(request for request, _ in self._parked.values())

    async def wait_pending(self, exclude: Collection[tuple[str, int]] = ()) -> tuple[GenerateRequest, ...]:
        """Returns as soon as at least one call waits that is not among `exclude` (session, call)."""
        while all(key in exclude for key in self._parked):
            self._arrived.clear()
            await self._arrived.wait()
        return self.pending()

    def answer(self, session: str, call: int, completion: Completion | Exception) -> None:
        """Ends the wait of one call with a completion, or with an error (InjectedFault, EngineError).

        Raises:
            ConfigError: no such call waits, or an id is outside the vocabulary.
        """
        if (session, call) not in self._parked:
            waiting = ", ".join(f"{s!r} call {c}" for s, c in self._parked) or "none"
            raise ConfigError(f"no call {call} of session {session!r} waits for an answer; waiting: {waiting}")
        if isinstance(completion, Completion):
            self._check(completion)
        _, future = self._parked.pop((session, call))
        if isinstance(completion, Completion):
            future.set_result(completion)
        else:
            future.set_exception(completion)

    async def generate(self, request: GenerateRequest) -> Completion:
        """Waits for `answer`.

        Raises:
            EngineError: the engine was closed, or the same call waits already.
        """
        key = (request.session, request.call)
        if self._closed or key in self._parked:
            why = (
                "the engine is closed" if self._closed else f"call {request.call} of {request.session!r} waits already"
            )
            raise EngineError(f"{self.spec} {why}")
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._parked[key] = (request, future)
        self._arrived.set()
        try:
            return await future
        finally:
            self._parked.pop(key, None)

    async def score(self, ids: TokenIds) -> LogProbs:
        """Refused.

        Raises:
            EngineError: always.
        """
        raise EngineError(f"{self.spec} holds no model, so it can't score {len(ids)} tokens")

    async def aclose(self) -> None:
        """Fails every call that waits."""
        self._closed = True
        for _, future in list(self._parked.values()):
            if not future.done():
                future.set_exception(EngineError(f"{self.spec} was closed while a call waited"))

    def _check(self, completion: Completion) -> None:
        outside = completion.ids[(completion.ids < 0) | (completion.ids >= self.codec.vocab_size)]
        if len(outside):
            raise ConfigError(
                f"token id {int(np.ravel(outside)[0])} is outside the vocabulary 0..{self.codec.vocab_size - 1}"
            )

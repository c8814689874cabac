"""The manual engine: calls wait, are listed oldest first, and end as they are told."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from mixharness.engines import make_engine
from mixharness.engines.base import Completion, GenerateRequest, InjectedFault, Sampling
from mixharness.engines.manual import ManualEngine
from mixharness.errors import ConfigError, EngineError


@pytest.fixture
def engine() -> ManualEngine:
    made = make_engine("manual:")
    assert isinstance(made, ManualEngine)
    return made


def request(call: int, session: str = "s") -> GenerateRequest:
    return GenerateRequest(np.arange(3, dtype=np.int32), Sampling(), session, call)


def completion(token: int) -> Completion:
    return Completion(np.array([token], np.int32), np.zeros(1, np.float32), "stop")


async def test_calls_wait_oldest_first(engine: ManualEngine) -> None:
    tasks = [asyncio.create_task(engine.generate(request(call))) for call in (0, 1)]
    pending = await engine.wait_pending()
    await asyncio.sleep(0)
    assert [r.call for r in pending] == [0, 1] and engine.pending() == pending
    engine.answer("s", 1, completion(5))
    assert (await tasks[1]).ids.tolist() == [5] and not tasks[0].done()
    assert [r.call for r in engine.pending()] == [0]
    engine.answer("s", 0, InjectedFault(529))
    with pytest.raises(InjectedFault):
        await tasks[0]


async def test_wait_pending_waits(engine: ManualEngine) -> None:
    waiter = asyncio.create_task(engine.wait_pending())
    await asyncio.sleep(0.01)
    assert not waiter.done()
    call = asyncio.create_task(engine.generate(request(0)))
    assert len(await waiter) == 1
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert engine.pending() == ()


async def test_wrong_answers_are_refused(engine: ManualEngine) -> None:
    with pytest.raises(ConfigError, match="no call 3 of session 'x' waits for an answer; waiting: none"):
        engine.answer("x", 3, completion(0))
    call = asyncio.create_task(engine.generate(request(0)))
    await engine.wait_pending()
    with pytest.raises(ConfigError, match="token id 999999 is outside the vocabulary"):
        engine.answer("s", 0, completion(999_999))
    with pytest.raises(EngineError, match="waits already"):
        await engine.generate(request(0))
    await engine.aclose()
    with pytest.raises(EngineError, match="closed while a call waited"):
        await call
    with pytest.raises(EngineError, match="holds no model"):
        await engine.score(np.zeros(2, np.int32))

"""ServedPolicy: one step is a whole rollout; the engine answers every call as it comes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from mixharness.engines import make_engine
from mixharness.engines.base import Engine, GenerateRequest, InjectedFault, Sampling
from mixharness.engines.manual import ManualEngine
from mixharness.envs.harness_env import HarnessEnv
from mixharness.errors import ConfigError, EngineError
from mixharness.runtime import shared_runtime
from mixharness.trees.tree import CallTree

Temperature = npt.NDArray[np.float32]


class ServedPolicy(gym.Wrapper[CallTree, Temperature, CallTree, Any]):
    """Wraps a HarnessEnv. The action is how to sample: the temperature, float32 [1]. The step plays the rollout to
    its end, calls that wait together answered together, and returns the finished tree. The same completions give the
    same tree as answering call by call.

    Args:
        env: a HarnessEnv, wrapped or not.
        engine: engine or spec; the env's own by default.
    """

    def __init__(self, env: gym.Env[CallTree, Any], engine: Engine | str | None = None) -> None:
        super().__init__(env)
        if not isinstance(env.unwrapped, HarnessEnv):
            raise ConfigError(f"ServedPolicy wraps a HarnessEnv, not {type(env.unwrapped).__name__}")
        self._base: HarnessEnv = env.unwrapped
        self.engine = make_engine(engine) if isinstance(engine, str) else engine or self._base.engine
        self.action_space = spaces.Box(0.0, 2.0, (1,), np.float32)

    def step(self, action: Temperature) -> tuple[CallTree, float, bool, bool, dict[str, Any]]:
        temperature = float(np.asarray(action).reshape(-1)[0])
        shared_runtime().run(self._serve(Sampling(temperature=temperature)))
        return self._base.outcome()

    async def _serve(self, sampling: Sampling) -> None:
        """Answers calls until the rollout ends."""
        result, manual = self._base.running()
        ended: asyncio.Future[Any] = asyncio.wrap_future(result)
        answering: set[asyncio.Task[None]] = set()
        claimed: set[tuple[str, int]] = set()
        try:
            while not ended.done():
                for request in manual.pending():
                    if (request.session, request.call) not in claimed:
                        claimed.add((request.session, request.call))
                        answering.add(asyncio.create_task(self._answer(manual, request, sampling)))
                waiting: asyncio.Future[Any] = asyncio.ensure_future(manual.wait_pending(exclude=claimed))
                await asyncio.wait({ended, waiting, *answering}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                answering = {task for task in answering if not _finished(task)}
        finally:
            for task in answering:
                task.cancel()

    async def _answer(self, manual: ManualEngine, request: GenerateRequest, sampling: Sampling) -> None:
        asked = replace(request.sampling, temperature=sampling.temperature)
        try:
            completion = await self.engine.generate(replace(request, sampling=asked))
        except (InjectedFault, EngineError) as fault:
            manual.answer(request.session, request.call, fault)
        else:
            manual.answer(request.session, request.call, completion)


def _finished(task: asyncio.Task[None]) -> bool:
    """True when done; raises what it raised."""
    if task.done():
        task.result()
    return task.done()

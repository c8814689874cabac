"""The envs as TorchRL envs: trees and completions travel as non-tensor data."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torchrl.data import NonTensor
from torchrl.envs import GymEnv, GymWrapper
from torchrl.envs.libs.gym import register_gym_spec_conversion

from mixharness.envs.spaces import CallTreeSpace, CompletionSpace


@register_gym_spec_conversion(CallTreeSpace)  # type: ignore[untyped-decorator]
def _tree_spec(spec: CallTreeSpace, **unused: Any) -> NonTensor:
    return NonTensor(shape=(), example_data=spec.sample())


@register_gym_spec_conversion(CompletionSpace)  # type: ignore[untyped-decorator]
def _completion_spec(spec: CompletionSpace, **unused: Any) -> NonTensor:
    return NonTensor(shape=(), example_data=spec.sample())


def make_torchrl(env_id: str, **options: Any) -> GymEnv:
    """TorchRL's GymEnv of a registered id; options as gym.make's."""
    return GymEnv(env_id, **options)


def wrap_torchrl(env: gym.Env[Any, Any]) -> GymWrapper:
    """An env made by hand, for example a ServedPolicy, as a TorchRL env."""
    return GymWrapper(env)

"""Gymnasium envs: one per (task, harness) pair, their spaces, registration, wrappers, TorchRL conversion.

May import rollout and everything below it; algos and leaderboards stand above. Names are loaded when they are used, so
that registering the envs costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixharness.envs.harness_env import HarnessEnv
    from mixharness.envs.registration import register_all
    from mixharness.envs.served import ServedPolicy
    from mixharness.envs.spaces import CallTreeSpace, CompletionSpace

_HOMES = {
    "HarnessEnv": "harness_env",
    "ServedPolicy": "served",
    "CallTreeSpace": "spaces",
    "CompletionSpace": "spaces",
    "register_all": "registration",
}
__all__ = ["CallTreeSpace", "CompletionSpace", "HarnessEnv", "ServedPolicy", "register_all"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

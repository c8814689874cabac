"""Gymnasium envs: one per (task, harness) pair, their spaces, registration, wrappers, TorchRL conversion.

May import rollout and everything below it; algos and leaderboards stand above.
"""

from mixharness.envs.harness_env import HarnessEnv
from mixharness.envs.registration import register_all
from mixharness.envs.served import ServedPolicy
from mixharness.envs.spaces import CallTreeSpace, CompletionSpace

__all__ = ["CallTreeSpace", "CompletionSpace", "HarnessEnv", "ServedPolicy", "register_all"]

"""Supervised fine-tuning on packed trajectories: L = - Σ_t c_t log π(t), where Σ c_t = 1 over one step's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.objectives import LossModule

from mixharness.algos.logprobs import as_tensordict
from mixharness.algos.packing import packs
from mixharness.trees.trajectory import Trajectory


class SFT(LossModule):  # type: ignore[misc]
    """Weighted cross-entropy of the sampled tokens of a packed batch.

    Reads `weight` [N] beside the policy's own keys. The result is a sum over tokens, so that packs of one step add up.
    """

    def __init__(self, policy: TensorDictModuleBase) -> None:
        super().__init__()
        self.policy = policy
        self.in_keys = [*policy.in_keys, "weight"]
        self.out_keys = ["loss_sft", "tokens"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """`loss_sft`, and `tokens`, how many were learnt."""
        log_prob = self.policy(tensordict.copy())["log_prob"]
        tokens = tensordict["trainable"].sum()
        return TensorDict({"loss_sft": -(tensordict["weight"] * log_prob).sum(), "tokens": tokens.to(log_prob.dtype)})


def sft_batches(
    trajectories: Sequence[Trajectory],
    weights: Sequence[npt.NDArray[np.floating]] | None = None,
    budget: int = 16384,
) -> list[TensorDict]:
    """The packs of one optimiser step.

    Args:
        trajectories: demonstrations; their shared prompts are computed once.
        weights: for each trajectory, how much each of its tokens [n] counts; None: all sampled tokens the same.
        budget: most unique tokens in one pack.

    Raises:
        ValueError: no sampled token has a positive weight.
    """
    parts = packs([[trajectory] for trajectory in trajectories], budget)
    scales = [np.zeros(len(part), np.float64) for part in parts]
    for part, scale in zip(parts, scales, strict=True):
        for place, member in enumerate(part.owners):
            path = part.path(place)
            scale[path] = 1.0 if weights is None else weights[member]
        scale[~part.trainable] = 0.0
    total = sum(float(scale.sum()) for scale in scales)
    if total <= 0:
        raise ValueError("no sampled token has a positive weight")
    batches = [as_tensordict(part) for part in parts]
    for batch, scale in zip(batches, scales, strict=True):
        batch["weight"] = torch.from_numpy((scale / total).astype(np.float32))
    return batches

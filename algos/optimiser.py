"""One optimiser step over the packs of a batch: gradients add up, then clip, step and advance the learning rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict import TensorDictBase
from torch import nn
from torchrl.objectives import LossModule

from mixharness.errors import MixharnessError


class DivergenceError(MixharnessError):
    """A loss or gradient is not finite."""


@dataclass(frozen=True)
class OptimiserOptions:
    """AdamW and its schedule.

    Attributes:
        warmup_steps: optimiser steps over which the learning rate rises linearly from 0.
        decay: "constant", or "cosine" down to a tenth at `total_steps`.
        max_grad_norm: gradients are scaled down to this global norm.
    """

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.1
    warmup_steps: int = 0
    decay: Literal["constant", "cosine"] = "constant"
    total_steps: int = 0
    max_grad_norm: float = 1.0

    def scale(self, step: int) -> float:
        """Learning rate of optimiser step `step` (from 0), as a share of `lr`."""
        warm = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        if self.decay == "constant":
            return warm
        done = min(1.0, step / max(1, self.total_steps))
        return warm * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


class Optimiser:
    """AdamW over a model's parameters."""

    def __init__(self, model: nn.Module, options: OptimiserOptions) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.options, self.steps = options, 0
        self._adam = torch.optim.AdamW(
            self.parameters, lr=options.lr, betas=options.betas, eps=options.eps, weight_decay=options.weight_decay
        )

    def step(self, loss: LossModule, batches: Sequence[TensorDictBase]) -> dict[str, float]:
        """Sums the loss over the packs and updates the weights once.

        Returns:
            The loss terms (summed), other outputs (means weighted by `tokens`; maxima for `…_max`), grad_norm and lr.

        Raises:
            DivergenceError: something is not finite; the weights are left as they were.
        """
        self._adam.zero_grad(set_to_none=True)
        outputs = []
        for batch in batches:
            output = loss(batch)
            sum(value for name, value in output.items() if name.startswith("loss_")).backward()
            outputs.append({name: float(value.detach()) for name, value in output.items()})
        norm = float(nn.utils.clip_grad_norm_(self.parameters, self.options.max_grad_norm))
        metrics = _merge(outputs) | {"grad_norm": norm, "lr": self.options.lr * self.options.scale(self.steps)}
        broken = [f"{name} = {value}" for name, value in metrics.items() if not math.isfinite(value)]
        if broken:
            raise DivergenceError(
                f"optimiser step {self.steps}: {', '.join(broken)}; a lower lr or max_grad_norm may help"
            )
        for group in self._adam.param_groups:
            group["lr"] = metrics["lr"]
        self._adam.step()
        self.steps += 1
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs to go on."""
        return {"adam": self._adam.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state."""
        self._adam.load_state_dict(state["adam"])
        self.steps = int(state["steps"])


def _merge(outputs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    tokens = sum(output["tokens"] for output in outputs)
    merged: dict[str, float] = {}
    for name in outputs[0]:
        values = [output[name] for output in outputs]
        if name == "tokens" or name.startswith("loss_"):
            merged[name] = sum(values)
        elif name.endswith("_max"):
            merged[name] = max(values)
        else:
            merged[name] = sum(value * output["tokens"] for value, output in zip(values, outputs, strict=True)) / tokens
    return merged

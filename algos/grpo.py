"""GRPO over packed trees, as a TorchRL loss module.

The objective of arXiv 2608.16798, to be minimised, with A_i the advantage of rollout i:

    L = - Σ_t c_t · w_t · min(r_t A_i, clip(r_t, 1 - ε_low, 1 + ε_high) A_i)  +  β Σ_t c_t KL_t

Kept: the clipped ratio r_t = exp(log π - log π_old) with asymmetric bounds; the truncated importance weight
w_t = min(exp(log π_old - log π_rollout), C); each sampled token of a tree once; the KL term, off by default. KL_t is
the estimator exp(d) - 1 - d with d = log π_ref - log π (arXiv 2402.03300, eq. 4). c_t is the normaliser, made by
`packing.token_weights`: 1 / (G |T_i|) as in the paper's per-rollout mean, or a token or trajectory mean. No term is
dropped.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.objectives import LossModule

from mixharness.algos.importance import tis_weights


class GRPO(LossModule):  # type: ignore[misc]
    """Reads a packed batch with old_log_prob, rollout_log_prob, advantage and weight, each [N]; ref_log_prob if β > 0.

    The result is a sum over tokens, so that packs of one step add up. Metrics are means over sampled tokens, whose
    count is `tokens`.

    Args:
        policy: writes log_prob [N] (see PackedPolicy).
        clip_low, clip_high: ε.
        tis_cap: C; None: no importance weight.
        kl_coeff: β.
    """

    def __init__(
        self,
        policy: TensorDictModuleBase,
        *,
        clip_low: float = 0.2,
        clip_high: float = 0.28,
        tis_cap: float | None = 2.0,
        kl_coeff: float = 0.0,
    ) -> None:
        super().__init__()
        self.policy = policy
        self.clip_low, self.clip_high, self.tis_cap, self.kl_coeff = clip_low, clip_high, tis_cap, kl_coeff
        reference = ["ref_log_prob"] if kl_coeff else []
        self.in_keys = [*policy.in_keys, "old_log_prob", "rollout_log_prob", "advantage", "weight", *reference]
        self.out_keys = ["loss_objective", "loss_kl_to_ref", "clip_fraction", "kl_to_old", "ratio_max", "tokens"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The loss terms (keys that start with `loss_`) and metrics."""
        sampled = tensordict["trainable"]
        log_prob = self.policy(tensordict.copy())["log_prob"][sampled]
        names = ("old_log_prob", "rollout_log_prob", "advantage", "weight")
        old, rollout, advantage, weight = (tensordict[name][sampled] for name in names)
        ratio = (log_prob - old).exp()
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        gain = torch.minimum(ratio * advantage, clipped * advantage)
        objective = -(weight * tis_weights(old, rollout, self.tis_cap) * gain).sum()
        return TensorDict(
            {
                "loss_objective": objective,
                "loss_kl_to_ref": self._kl_to_ref(tensordict, log_prob, weight),
                **_metrics(log_prob.detach() - old, clipped * advantage < ratio * advantage),
            }
        )

    def _kl_to_ref(self, tensordict: TensorDictBase, log_prob: Tensor, weight: Tensor) -> Tensor:
        if not self.kl_coeff:
            return log_prob.new_zeros(())
        gap = tensordict["ref_log_prob"][tensordict["trainable"]] - log_prob
        loss: Tensor = self.kl_coeff * (weight * (gap.expm1() - gap)).sum()
        return loss


def _metrics(change: Tensor, clipped: Tensor) -> dict[str, Tensor]:
    """`kl_to_old` is KL(π_old‖π), the k3 estimator; `clip_fraction` counts tokens that the clip keeps from moving."""
    return {
        "clip_fraction": clipped.to(change.dtype).mean(),
        "kl_to_old": (change.expm1() - change).mean(),
        "ratio_max": change.abs().max().exp(),
        "tokens": torch.tensor(float(len(change))),
    }

"""How far the engine that sampled a token was from the trainer that learns from it, and the weight that corrects it."""

from __future__ import annotations

import torch
from torch import Tensor


def tis_weights(old: Tensor, rollout: Tensor, cap: float | None = 2.0) -> Tensor:
    """Token-level truncated importance sampling: w = min(exp(old - rollout), cap), without a lower bound.

    Args:
        old: the trainer's log-probs before the update.
        rollout: the engine's log-probs, as sampled.
        cap: C; None: no correction, every weight is 1.
    """
    return torch.ones_like(old) if cap is None else (old - rollout).exp().clamp(max=cap).detach()


def mismatch(old: Tensor, rollout: Tensor, cap: float | None = 2.0) -> dict[str, float]:
    """Metrics of engine against trainer over sampled tokens [K], K > 0.

    Returns:
        kl: KL(engine‖trainer) in nats a token, the non-negative estimator E[exp(d) - 1 - d] with d = old - rollout
            under the engine's samples (J. Schulman, "Approximating KL divergence", k3).
        max_abs: largest |d|.
        capped: share of tokens whose weight reached the cap.
    """
    difference = (old - rollout).double()
    capped = (difference.exp() >= cap).double().mean() if cap is not None else torch.zeros(())
    return {
        "kl": float((difference.expm1() - difference).mean()),
        "max_abs": float(difference.abs().max()),
        "capped": float(capped),
    }

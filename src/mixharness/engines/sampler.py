"""Picks tokens from logits. A row's choice depends on its own logits and its own random numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mixharness.engines.base import Sampling


@dataclass(frozen=True)
class Draw:
    """What one row brings to a step: how it samples, and a uniform number in [0, 1)."""

    sampling: Sampling
    uniform: float


def pick(logits: Tensor, draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
    """Samples one id a row by inverting the cumulative distribution at the row's uniform number.

    Args:
        logits: fp32 [rows, vocab].
        draws: one a row. Temperature 0 takes the likeliest id.

    Returns:
        ids, and their log-probs under the unfiltered distribution at temperature 1.
    """
    logprobs = logits.log_softmax(-1)
    shaped = logprobs
    if any(d.sampling.temperature != 1 or d.sampling.top_k or d.sampling.top_p < 1 for d in draws):
        shaped = torch.stack([_shape(row, d.sampling) for row, d in zip(logprobs, draws, strict=True)])
    cumulative = shaped.exp().double().cumsum(-1)
    uniform = torch.tensor([[d.uniform] for d in draws], dtype=torch.float64, device=logits.device)
    ids = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp_(max=logits.shape[-1] - 1)
    return ids[:, 0].tolist(), logprobs.gather(-1, ids)[:, 0].tolist()


def _shape(logprobs: Tensor, sampling: Sampling) -> Tensor:
    """Log-probs [vocab] after temperature, top_k and top_p; what is filtered out is -inf."""
    if sampling.temperature == 0:
        only = torch.full_like(logprobs, -torch.inf)
        only[logprobs.argmax()] = 0
        return only
    shaped = (logprobs / sampling.temperature).log_softmax(-1)
    if sampling.top_k:
        least = shaped.topk(min(sampling.top_k, len(shaped))).values[-1]
        shaped = shaped.masked_fill(shaped < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = shaped.sort(descending=True, stable=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        shaped = shaped.index_fill(0, order[before >= sampling.top_p], -torch.inf)
    return shaped

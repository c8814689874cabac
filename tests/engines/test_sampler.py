"""Sampling: the right distribution, exact log-probs, filters as their definitions say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mixharness.engines.base import Sampling
from mixharness.engines.sampler import Draw, pick
from mixharness.errors import ConfigError

LOGITS = torch.tensor([2.0, 0.0, 1.0, -1.0, 1.5])
LOGPROBS = LOGITS.log_softmax(-1)


def frequencies(sampling: Sampling, n: int = 2000) -> np.ndarray:
    """How often each id comes at n evenly spaced uniform numbers: exact to 1/n."""
    draws = [Draw(sampling, (i + 0.5) / n) for i in range(n)]
    ids, logprobs = pick(LOGITS.expand(n, -1), draws)
    np.testing.assert_allclose(logprobs, LOGPROBS[ids], atol=1e-6)
    return np.bincount(ids, minlength=5) / n


def softmax(logits: list[float]) -> np.ndarray:
    weights = np.exp(np.array(logits))
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("sampling", "wanted"),
    [
        (Sampling(), softmax([2, 0, 1, -1, 1.5])),
        (Sampling(temperature=0.5), softmax([4, 0, 2, -2, 3])),
        (Sampling(temperature=0), np.array([1.0, 0, 0, 0, 0])),
        (Sampling(top_k=2), softmax([2, -np.inf, -np.inf, -np.inf, 1.5])),
        (Sampling(top_k=99), softmax([2, 0, 1, -1, 1.5])),
        (Sampling(top_p=0.5), softmax([2, -np.inf, -np.inf, -np.inf, 1.5])),  # 0.46 alone is less than a half
        (Sampling(top_p=1e-9), np.array([1.0, 0, 0, 0, 0])),
        (Sampling(temperature=0.5, top_k=3, top_p=0.9), softmax([4, -np.inf, -np.inf, -np.inf, 3])),
    ],
)
def test_distribution(sampling: Sampling, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(frequencies(sampling), wanted, atol=1e-3)


def test_rows_are_independent() -> None:
    kinds = [Sampling(), Sampling(temperature=0), Sampling(top_k=1), Sampling(temperature=2.0)]
    draws = [Draw(kind, u) for kind in kinds for u in (0.05, 0.6, 0.999999)]
    together, _ = pick(LOGITS.expand(len(draws), -1), draws)
    assert together == [pick(LOGITS[None], [draw])[0][0] for draw in draws]


def test_impossible_ids_are_never_drawn() -> None:
    logits = torch.full((2, 1000), -torch.inf)
    logits[:, 500] = 0
    ids, logprobs = pick(logits, [Draw(Sampling(), 0.0), Draw(Sampling(), 1 - 2**-53)])
    assert ids == [500, 500] and logprobs == [0, 0]


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0}, {"top_k": -1}, {"seed": -1}]
)
def test_values_out_of_range_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]

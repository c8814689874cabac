"""Supervised fine-tuning: the loss is the weighted cross-entropy, and the optimiser really optimises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.algos.models import gradients, naive_log_probs, tiny
from tests.algos.trees import shaped

from mixharness.algos.logprobs import PackedPolicy
from mixharness.algos.optimiser import DivergenceError, Optimiser, OptimiserOptions
from mixharness.algos.sft import SFT, sft_batches

BATCH = [group[0] for group in shaped(system=20, groups=2, prompt=5, size=3, vocab=23)]


@pytest.mark.parametrize("budget", [50, 10_000])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_is_the_weighted_cross_entropy(budget: int, weighted: bool) -> None:
    model, rng = tiny(), np.random.default_rng(0)
    weights = [rng.uniform(0, 2, len(t.ids)) for t in BATCH] if weighted else None
    pairs = [(w if weights else np.ones(len(t.ids)), t) for w, t in zip(weights or BATCH, BATCH, strict=True)]
    total = sum(float(w[t.trainable].sum()) for w, t in pairs)
    expected = torch.zeros(())
    for w, t in pairs:
        mask = torch.from_numpy((w * t.trainable)[1:] / total).float()
        expected = expected - (mask * naive_log_probs(model, t)).sum()
    expected_grads = gradients(model, expected)
    batches = sft_batches(BATCH, weights, budget)
    assert (len(batches) > 1) is (budget == 50)
    loss = sum(SFT(PackedPolicy(model))(batch)["loss_sft"] for batch in batches)
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    for name, grad in gradients(model, loss).items():
        torch.testing.assert_close(grad, expected_grads[name], atol=1e-5, rtol=1e-4, msg=name)


def test_a_few_steps_learn_the_demonstrations() -> None:
    model = tiny()
    optimiser = Optimiser(model, OptimiserOptions(lr=1e-2, weight_decay=0.0, warmup_steps=3))
    batches = sft_batches(BATCH[:2])
    losses = [optimiser.step(SFT(PackedPolicy(model)), batches)["loss_sft"] for _ in range(40)]
    assert losses[-1] < 0.3 * losses[0]


def test_splitting_a_step_into_packs_changes_nothing() -> None:
    states = []
    for budget in (50, 10_000):
        model = tiny()
        optimiser = Optimiser(model, OptimiserOptions(lr=1e-3))
        for _ in range(2):
            metrics = optimiser.step(SFT(PackedPolicy(model)), sft_batches(BATCH, budget=budget))
        states.append((metrics, model.state_dict()))
    assert states[0][0] == pytest.approx(states[1][0], rel=1e-4)
    for name, value in states[0][1].items():
        torch.testing.assert_close(value, states[1][1][name], atol=1e-4, rtol=1e-3)


def test_a_loss_that_is_not_finite_stops_before_the_weights_change() -> None:
    model = tiny()
    optimiser = Optimiser(model, OptimiserOptions())
    batches = sft_batches(BATCH[:1])
    batches[0]["weight"][:] = torch.inf
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(DivergenceError, match="loss_sft"):
        optimiser.step(SFT(PackedPolicy(model)), batches)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_no_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="no sampled token"):
        sft_batches(BATCH[:1], [np.zeros(len(BATCH[0].ids))])


def test_learning_rate_schedule() -> None:
    warm = OptimiserOptions(warmup_steps=4)
    assert [warm.scale(step) for step in (0, 1, 3, 100)] == [0.25, 0.5, 1.0, 1.0]
    cosine = OptimiserOptions(decay="cosine", total_steps=10)
    assert [cosine.scale(step) for step in (0, 5, 10, 20)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert math.isclose(cosine.scale(0), 1.0)

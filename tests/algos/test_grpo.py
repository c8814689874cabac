"""GRPO's loss and gradients equal a per-token loop, and TorchRL's own GRPOLoss where the definitions agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from tests.algos.models import gradients, naive_tokens, tiny
from tests.algos.trees import rollouts, shaped
from torch import Tensor, nn
from torchrl.modules.llm.policies.common import LLMMaskedCategorical
from torchrl.objectives.llm import GRPOLoss

from mixharness.algos.grpo import GRPO
from mixharness.algos.importance import mismatch, tis_weights
from mixharness.algos.logprobs import PackedPolicy, as_tensordict
from mixharness.algos.packing import Normaliser, pack, packs, token_weights
from mixharness.trees.trajectory import Trajectory

CLIP_LOW, CLIP_HIGH, CAP, BETA = 0.2, 0.28, 2.0, 0.3


def noise(key: object, salt: float) -> float:
    """A number in [-0.8, 0.8] that follows from a token's name."""
    return 0.8 * math.sin(1e3 * salt + 17.0 * len(str(key)) + hash(key) % 1000)


def naive_loss(found: list[dict[tuple[object, ...], Tensor]], advantages: np.ndarray, sizes: list[int]) -> Tensor:
    """The paper's sum, token by token, per-rollout mean; log-probs of the past are made up from the token's name."""
    total = torch.zeros((), dtype=torch.float64)
    for i, tokens in enumerate(found):
        for key, value in tokens.items():
            old, rollout, ref = (value.detach().double() + noise((i, *key), salt) for salt in (1.0, 2.0, 3.0))
            ratio = torch.exp(value.double() - old)
            a = float(advantages[i])
            gain = min(ratio * a, torch.clamp(ratio, 1 - CLIP_LOW, 1 + CLIP_HIGH) * a)
            weight = min(math.exp(float(old - rollout)), CAP)
            gap = ref - value.double()
            kl = torch.exp(gap) - gap - 1
            total = total + (-weight * gain + BETA * kl) / (len(found) * sizes[i])
    return total


@settings(max_examples=15, deadline=None)
@given(rollouts(3))
def test_loss_and_gradients_equal_a_loop_over_tokens(batch: list[list[Trajectory]]) -> None:
    model = tiny(dtype=torch.float64)
    found = naive_tokens(model, batch)
    advantages = np.array([0.7, -1.3, 0.4])[: len(batch)]
    expected_loss = naive_loss(found, advantages, [len(tokens) for tokens in found])
    expected = gradients(model, expected_loss)

    parts = packs(batch, 40)
    loss = torch.zeros((), dtype=torch.float64)
    for part, weight in zip(parts, token_weights(parts), strict=True):
        data = as_tensordict(part)
        names = _names(part, batch)
        current = PackedPolicy(model)(data.clone())["log_prob"].detach()
        for key, salt in (("old_log_prob", 1.0), ("rollout_log_prob", 2.0), ("ref_log_prob", 3.0)):
            shift = [noise(names[n], salt) if n in names else 0.0 for n in range(len(part))]
            data[key] = current + torch.tensor(shift, dtype=torch.float64)
        data["advantage"] = torch.tensor([advantages[r] if r >= 0 else 0.0 for r in part.rollout])
        data["weight"] = torch.from_numpy(weight).double()
        out = GRPO(PackedPolicy(model), clip_low=CLIP_LOW, clip_high=CLIP_HIGH, tis_cap=CAP, kl_coeff=BETA)(data)
        loss = loss + out["loss_objective"] + out["loss_kl_to_ref"]
    torch.testing.assert_close(loss, expected_loss, atol=1e-6, rtol=1e-6)  # weights are stored in fp32
    for name, grad in gradients(model, loss).items():
        torch.testing.assert_close(grad, expected[name], atol=1e-6, rtol=1e-5, msg=name)


def _names(part: object, batch: list[list[Trajectory]]) -> dict[int, tuple[object, ...]]:
    """Packed index → the name naive_tokens gives the token."""
    names: dict[int, tuple[object, ...]] = {}
    for place, owner in enumerate(part.owners):  # type: ignore[attr-defined]
        path = part.path(place)  # type: ignore[attr-defined]
        pairs = list(zip(part.ids[path].tolist(), part.source[path].tolist(), strict=True))  # type: ignore[attr-defined]
        names |= {int(n): (int(owner), *pairs[: depth + 1]) for depth, n in enumerate(path) if part.trainable[n]}  # type: ignore[attr-defined]
    return names


class _Fixed(TensorDictModuleBase):
    """A policy whose log-probs are a parameter."""

    in_keys, out_keys = ("trainable",), ("log_prob",)

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self, data: TensorDict) -> TensorDict:
        return data.set("log_prob", self.values)


class _Actor(nn.Module):
    """The same log-probs for TorchRL's GRPOLoss: logits of one unit, padded on the left."""

    def __init__(self, logits: Tensor, mask: Tensor) -> None:
        super().__init__()
        self.logits, self.mask, self.in_keys = nn.Parameter(logits), mask, []

    def get_dist(self, data: TensorDict, **_: object) -> LLMMaskedCategorical:
        return LLMMaskedCategorical(logits=self.logits, mask=self.mask)


@pytest.mark.parametrize(("aggregation", "normaliser"), [("token_mean", "token"), ("prompt_mean", "rollout")])
def test_equals_torchrl(aggregation: str, normaliser: Normaliser) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    batch = shaped(system=4, groups=2, prompt=3, size=2, vocab=11)
    flat = [group[0] for group in batch]
    batch = [[_cut(t, 20 + 7 * i)] for i, t in enumerate(flat)]
    part = pack(batch)
    longest, vocab = max(len(g[0].ids) for g in batch), 11
    ids, mask = torch.zeros(len(batch), longest, dtype=torch.long), torch.zeros(len(batch), longest, dtype=torch.bool)
    for row, (t,) in enumerate(batch):
        ids[row, -len(t.ids) :] = torch.from_numpy(t.ids).long()
        mask[row, -len(t.ids) :] = torch.from_numpy(t.trainable)
    logits = torch.randn(len(batch), longest, vocab)
    current = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    old = torch.where(mask, current + 0.4 * torch.randn(current.shape), torch.nan)
    rollout = torch.where(mask, old + 0.8 * torch.randn(old.shape), torch.nan)
    advantage = torch.from_numpy(rng.normal(size=len(batch))).float()
    tis = torch.where(mask, tis_weights(old.nan_to_num(), rollout.nan_to_num(), CAP), 0.0)

    actor = _Actor(logits.clone(), mask)
    theirs = GRPOLoss(
        actor,
        clip_epsilon=(CLIP_LOW, CLIP_HIGH),
        aggregation=aggregation,
        entropy_bonus=False,
        masking_strategy="generic",
    )
    data = TensorDict(
        {
            ("tokens", "full"): ids,
            ("log_probs", "full"): old,
            ("masks", "all_attention_mask"): mask,
            ("masks", "all_assistant_mask"): mask,
            "advantage": (advantage[:, None] * tis)[..., None],
        },
        [len(batch)],
    )
    expected = theirs(data)
    expected.loss_objective.backward()

    spread = torch.zeros(len(part))
    ours = {"old_log_prob": spread.clone(), "rollout_log_prob": spread.clone(), "log_prob": spread.clone()}
    for row in range(len(batch)):
        path = part.path(row)
        for name, values in (("old_log_prob", old), ("rollout_log_prob", rollout), ("log_prob", current)):
            ours[name][path] = values[row, -len(path) :].nan_to_num()
    policy = _Fixed(ours.pop("log_prob"))
    packed = as_tensordict(part).update(ours)
    packed["advantage"] = advantage[torch.from_numpy(part.rollout).long()]
    packed["weight"] = torch.from_numpy(token_weights([part], normaliser)[0])
    result = GRPO(policy, clip_low=CLIP_LOW, clip_high=CLIP_HIGH, tis_cap=CAP)(packed)
    result["loss_objective"].backward()
    torch.testing.assert_close(result["loss_objective"], expected.loss_objective.squeeze(), atol=1e-6, rtol=1e-5)
    # Their gradient is in the logits: the chosen token's component is (1 - p) times ours in its log-prob.
    grad, chosen = actor.logits.grad, logits.softmax(-1).gather(-1, ids[..., None])[..., 0]
    assert grad is not None and policy.values.grad is not None
    theirs_in_log_prob = grad.gather(-1, ids[..., None])[..., 0] / (1 - chosen)
    for row in range(len(batch)):
        path = part.path(row)
        sampled = part.trainable[path]
        torch.testing.assert_close(
            policy.values.grad[path][sampled], theirs_in_log_prob[row, -len(path) :][sampled], atol=1e-6, rtol=1e-4
        )


def _cut(t: Trajectory, length: int) -> Trajectory:
    return Trajectory(t.kind, t.calls, *(values[:length] for values in (t.ids, t.source, t.logprobs, t.versions)))


@pytest.mark.parametrize(
    ("advantage", "ratio", "gradient"),
    [
        (1.0, 1.27, True),
        (1.0, 1.29, False),
        (-1.0, 0.81, True),
        (-1.0, 0.79, False),
        (1.0, 0.5, True),
        (-1.0, 2.0, True),
    ],
)
def test_the_clip_stops_only_moves_that_already_went_too_far(advantage: float, ratio: float, gradient: bool) -> None:
    policy = _Fixed(torch.tensor([math.log(ratio)]))
    data = TensorDict({"trainable": torch.tensor([True])}, [1])
    for name, value in (("old_log_prob", 0.0), ("rollout_log_prob", 0.0), ("advantage", advantage), ("weight", 1.0)):
        data[name] = torch.tensor([float(value)])
    out = GRPO(policy)(data)
    out["loss_objective"].backward()
    assert policy.values.grad is not None
    assert bool(policy.values.grad.abs() > 0) is gradient
    assert float(out["clip_fraction"]) == (0.0 if gradient else 1.0)


def test_importance_weights_are_capped_above_only() -> None:
    old, rollout = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([-3.0, 0.0, 3.0])
    torch.testing.assert_close(tis_weights(old, rollout), torch.tensor([2.0, 1.0, math.exp(-3.0)]))
    torch.testing.assert_close(tis_weights(old, rollout, None), torch.ones(3))


def test_mismatch_is_zero_for_equal_log_probs_and_counts_the_rest() -> None:
    same = torch.tensor([-1.0, -2.0])
    assert mismatch(same, same) == {"kl": 0.0, "max_abs": 0.0, "capped": 0.0}
    metrics = mismatch(torch.tensor([-1.0, -2.0]), torch.tensor([-2.0, -2.0]))
    assert metrics == pytest.approx({"kl": (math.e - 2) / 2, "max_abs": 1.0, "capped": 0.5})


def test_keys_are_declared() -> None:
    policy = _Fixed(torch.zeros(1))
    assert {"trainable", "advantage", "weight", "old_log_prob", "rollout_log_prob"} == set(GRPO(policy).in_keys)
    assert "ref_log_prob" in GRPO(policy, kl_coeff=0.1).in_keys

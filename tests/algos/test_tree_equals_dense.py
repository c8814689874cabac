"""Packed log-probs, loss and every parameter's gradient equal a dense pass over each trajectory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.algos.models import gradients, naive_log_probs, naive_tokens, tiny
from tests.algos.trees import rollouts, shaped, trajectory

from mixharness.algos import attention, logprobs
from mixharness.algos.attention import plan_attention, tree_attention, use_tree_attention
from mixharness.algos.logprobs import PackedPolicy, as_tensordict
from mixharness.algos.packing import pack
from mixharness.trees.trajectory import Trajectory

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=15, deadline=None)
@given(batch=rollouts(3), call_cost=st.sampled_from([0, 20, 8192]))
def test_packed_equals_per_trajectory(
    family: str, dtype: torch.dtype, batch: list[list[Trajectory]], call_cost: int
) -> None:
    model = tiny(family, dtype)
    naive = naive_tokens(model, batch)
    # A loss that tells tokens apart: each has a random weight that follows from its place.
    wanted = [value for tokens in naive for value in tokens.values()]
    slopes = [math.sin(len(key) + 3 * i) for i, tokens in enumerate(naive) for key in tokens]
    expected_loss = sum(s * (v + 0.1 * v * v) for s, v in zip(slopes, wanted, strict=True))
    expected = gradients(model, expected_loss)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "CALL_COST", call_cost)  # 0: every block alone; 8192: all batched and padded
        packed = pack(batch)
        data = PackedPolicy(model, entropy=True)(as_tensordict(packed))
    tolerance = TOLERANCE[dtype]
    for i, tokens in enumerate(naive):
        got = data["log_prob"][torch.from_numpy(packed.rollout == i)]
        wanted_here = torch.stack(list(tokens.values()))
        torch.testing.assert_close(got.sort()[0], wanted_here.sort()[0], atol=tolerance, rtol=tolerance)
    slope = torch.sin(torch.from_numpy(packed.position + 1 + 3.0 * packed.rollout)).to(dtype)
    value = data["log_prob"]
    loss = (torch.where(data["trainable"], slope, 0) * (value + 0.1 * value * value)).sum()
    torch.testing.assert_close(loss, torch.as_tensor(expected_loss), atol=10 * tolerance, rtol=10 * tolerance)
    for name, grad in gradients(model, loss).items():
        scale = float(expected[name].abs().max()) + 1
        torch.testing.assert_close(grad / scale, expected[name] / scale, atol=5 * tolerance, rtol=0, msg=name)


def test_read_back_paths_give_each_trajectory_its_own_log_probs() -> None:
    model = tiny()
    batch = shaped(system=30, groups=2, prompt=5, size=3, vocab=23)
    packed = pack(batch)
    with torch.no_grad():
        expected = [naive_log_probs(model, t) for group in batch for t in group]
        values = PackedPolicy(model)(as_tensordict(packed))["log_prob"]
    for index, scores in enumerate(expected):
        path = packed.path(index)
        sampled = packed.trainable[path]
        torch.testing.assert_close(values[path][sampled], scores[sampled[1:]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reference_mask_gives_the_same_model_output(dtype: torch.dtype) -> None:
    model, batch = tiny("llama", dtype), pack(shaped(1, system=20, groups=2, prompt=5, size=3, vocab=23))
    policy, data = PackedPolicy(model), as_tensordict(batch)
    with torch.no_grad():
        fast = policy(data.clone())["log_prob"]
        use_tree_attention(model, dense=True)
        slow = policy(data.clone())["log_prob"]
    torch.testing.assert_close(fast, slow, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_bf16_accumulates_in_fp32() -> None:
    batch = pack(shaped(2, system=200, groups=3, prompt=7, size=4))
    plan = plan_attention(batch.parent, batch.sub_end)
    q, k, v = torch.randn(3, len(batch), 4, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = attention.dense_attention(q.double(), k.double(), v.double(), plan, 0.25)
    error = (tree_attention(q, k, v, plan, 0.25).double() - exact).abs().max()
    assert error < 2 * (attention.dense_attention(q, k, v, plan, 0.25).double() - exact).abs().max()


def test_every_pair_is_computed_once() -> None:
    batch = pack(shaped(3, system=50, groups=3, prompt=6, size=4))
    seen = np.zeros((len(batch), len(batch)), int)
    for call in plan_attention(batch.parent, batch.sub_end).calls:
        rows, cols = (np.atleast_2d(np.arange(len(batch))[span.index]) for span in (call.queries, call.keys))
        for b in range(len(rows)):
            row_ok, col_ok = (
                np.ones(len(x[b]), bool) if span.valid is None else span.valid[b].numpy()
                for x, span in ((rows, call.queries), (cols, call.keys))
            )
            block = np.ix_(rows[b][row_ok], cols[b][col_ok])
            seen[block] += np.tril(np.ones(seen[block].shape, int)) if call.causal else 1
    index = np.arange(len(batch))
    np.testing.assert_array_equal(seen, (index <= index[:, None]) & (index[:, None] < batch.sub_end))


def test_head_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny(), pack(shaped(4, system=10, groups=1, prompt=4, size=2, vocab=23))
    policy = PackedPolicy(model, entropy=True)
    whole = policy(as_tensordict(batch))
    expected = gradients(model, whole["log_prob"].sum())
    monkeypatch.setattr(logprobs, "HEAD_CELLS", 23 * 7)
    parts = policy(as_tensordict(batch))
    torch.testing.assert_close(parts["log_prob"], whole["log_prob"])
    torch.testing.assert_close(parts["entropy"], whole["entropy"])
    for name, grad in gradients(model, parts["log_prob"].sum()).items():
        torch.testing.assert_close(grad, expected[name], atol=1e-5, rtol=1e-5)


def test_gradient_checkpointing_keeps_the_gradients() -> None:
    model, batch = tiny(), pack(shaped(5, system=10, groups=2, prompt=4, size=2, vocab=23))
    policy = PackedPolicy(model)
    expected = gradients(model, policy(as_tensordict(batch))["log_prob"].sum())
    model.gradient_checkpointing_enable()
    model.train()
    for name, grad in gradients(model, policy(as_tensordict(batch))["log_prob"].sum()).items():
        torch.testing.assert_close(grad, expected[name], atol=1e-5, rtol=1e-5)


def test_a_model_without_a_plan_is_refused() -> None:
    model = tiny()
    use_tree_attention(model)
    with pytest.raises(ValueError, match="needs tree_plan="):
        model(input_ids=torch.tensor([[1, 2]]), use_cache=False)


def test_a_single_chain_is_plain_causal_attention() -> None:
    batch = pack([[trajectory([(-1, [1, 2, 3]), (0, [4, 5]), (-1, [6]), (1, [7])])]])
    plan = plan_attention(batch.parent, batch.sub_end)
    assert len(plan.calls) == 1 and plan.calls[0].causal

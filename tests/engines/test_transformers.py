"""The in-process engine against transformers' own forward: exact log-probs under any sharing and concurrency."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import MambaConfig, MambaForCausalLM

from mixharness.engines import make_engine
from mixharness.engines.base import Completion, GenerateRequest, TrainableEngine
from mixharness.engines.codec import ChatCodec
from mixharness.engines.hf import HfForward
from mixharness.engines.qwen3 import Qwen3Forward
from mixharness.engines.tiny import TINY_DIR
from mixharness.engines.transformers import TransformersEngine
from mixharness.errors import ConfigError, EngineError

from .models import VOCAB, llama, qwen3, reference, request

MODELS = {"qwen3": qwen3(), "untied": qwen3(tied=False), "llama": llama()}


def engine_of(name: str, lean: bool = True, **options: Any) -> TransformersEngine:
    options.setdefault("seed", 0)
    return TransformersEngine(MODELS[name], codec=ChatCodec.load(TINY_DIR), lean=lean, **options)


KINDS = [("qwen3", True), ("untied", True), ("qwen3", False), ("llama", True)]


@pytest.fixture(params=KINDS, ids=["lean", "lean-untied", "hf-qwen3", "hf-llama"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[TransformersEngine]:
    made = engine_of(*request.param)
    made.model = MODELS[request.param[0]]  # type: ignore[attr-defined]
    yield made
    await made.aclose()


def assert_exact(model: Any, asked: list[GenerateRequest], answered: list[Completion]) -> None:
    for one, completion in zip(asked, answered, strict=True):
        assert 1 <= len(completion.ids) <= one.sampling.max_tokens
        np.testing.assert_allclose(
            completion.logprobs, reference(model, one.prompt_ids, completion), rtol=1e-5, atol=2e-5
        )


def test_the_lean_forward_is_used_where_it_is_exact() -> None:
    assert isinstance(engine_of("qwen3")._forward, Qwen3Forward)
    assert isinstance(make_engine("transformers:tiny")._forward, Qwen3Forward)
    assert isinstance(make_engine("transformers:tiny", dtype="bfloat16")._forward, HfForward)
    assert isinstance(engine_of("llama")._forward, HfForward)


@st.composite
def traffic(draw: st.DrawFn) -> list[tuple[int, list[int], int]]:
    """Calls as (delay in loop turns, prompt, max_tokens): prompts are cut from a few long ones and go their own way."""
    stems = draw(st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=200), min_size=1, max_size=3))
    calls = []
    for _ in range(draw(st.integers(1, 12))):
        stem = draw(st.sampled_from(stems))
        prompt = stem[: draw(st.integers(0, len(stem)))] + draw(st.lists(st.integers(0, VOCAB - 1), max_size=30))
        calls.append((draw(st.integers(0, 20)), prompt or [0], draw(st.integers(1, 12))))
    return calls


@pytest.mark.parametrize(("name", "lean"), [("qwen3", True), ("qwen3", False), ("llama", True)])
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(traffic(), min_size=1, max_size=2), max_batch=st.integers(1, 8), cache=st.sampled_from([0, 512]))
def test_logprobs_are_exact_under_any_traffic(name: str, lean: bool, rounds: Any, max_batch: int, cache: int) -> None:
    async def later(engine: TransformersEngine, delay: int, one: GenerateRequest) -> Completion:
        await asyncio.sleep(delay / 2000)
        return await engine.generate(one)

    async def main() -> None:
        engine = engine_of(name, lean, max_batch=max_batch, cache_mb=cache)
        for calls in rounds:
            asked = [request(prompt, max_tokens) for _, prompt, max_tokens in calls]
            pairs = zip(calls, asked, strict=True)
            answered = await asyncio.gather(*(later(engine, delay, one) for (delay, _, _), one in pairs))
            assert_exact(MODELS[name], asked, answered)
            follow_ups = [
                request(np.concatenate([one.prompt_ids, done.ids, [1, 2]]), 4)
                for one, done in zip(asked, answered, strict=True)
            ]
            assert_exact(MODELS[name], follow_ups, list(await asyncio.gather(*map(engine.generate, follow_ups))))
        assert not engine._forward.rows
        assert engine._cache.tokens == sum(len(node.ids) for node in every_node(engine))
        assert not any(node.pins for node in every_node(engine))
        await engine.aclose()

    asyncio.run(main())


def every_node(engine: TransformersEngine) -> list[Any]:
    found, open_ = [], [engine._cache.root]
    while open_:
        node = open_.pop()
        found.append(node)
        open_.extend(node.children.values())
    return found


async def test_a_seed_repeats_whatever_runs_beside_it(engine: TransformersEngine) -> None:
    rng = np.random.default_rng(3)
    asked = [request(rng.integers(0, VOCAB, n), 12, seed=n) for n in range(1, 40, 3)]
    alone = [await engine.generate(one) for one in asked]
    together = await asyncio.gather(*map(engine.generate, asked))
    assert [a.ids.tolist() for a in alone] == [t.ids.tolist() for t in together]
    other = await engine.generate(request(asked[5].prompt_ids, 12, seed=999))
    assert other.ids.tolist() != alone[5].ids.tolist()


async def test_calls_that_share_a_seed_have_random_numbers_of_their_own(engine: TransformersEngine) -> None:
    one = request([7], 12, seed=5)
    first, second, again = [await engine.generate(replace(one, call=call)) for call in (0, 1, 0)]
    assert first.ids.tolist() == again.ids.tolist() != second.ids.tolist()


async def test_rows_with_a_common_prefix_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[set[tuple[int, int]]] = []
    plan = Qwen3Forward._plan

    def spy(self: Qwen3Forward, lengths: list[int]) -> Any:
        plans.append({(group.size, group.shared) for group in self._groups})
        return plan(self, lengths)

    monkeypatch.setattr(Qwen3Forward, "_plan", spy)
    rng = np.random.default_rng(0)
    stems = [rng.integers(0, VOCAB, 150), rng.integers(0, VOCAB, 90)]
    tails = [rng.integers(0, VOCAB, n) for n in (3, 9, 1, 30, 5, 7)]
    prompts = [np.concatenate([stems[i % 2], tail]) for i, tail in enumerate(tails)] + [rng.integers(0, VOCAB, 20)]
    asked = [request(prompt, 20 + 5 * i) for i, prompt in enumerate(prompts)]
    engine = engine_of("qwen3")
    answered = await asyncio.gather(*map(engine.generate, asked))
    await engine.aclose()
    assert_exact(MODELS["qwen3"], asked, list(answered))
    together = {shared for size, shared in set.union(*plans) if size > 1}
    assert {150, 90} <= together  # how many at a time depends on when they arrive


async def test_greedy_is_the_argmax_with_logprobs_at_temperature_1(engine: TransformersEngine) -> None:
    model = engine.model  # type: ignore[attr-defined]
    one = request([5, 6, 7], 10, temperature=0)
    completion = await engine.generate(one)
    ids = torch.tensor([[5, 6, 7, *completion.ids.tolist()]])
    with torch.no_grad():
        assert model(ids).logits[0, 2:-1].argmax(-1).tolist() == completion.ids.tolist()
    assert_exact(model, [one], [completion])


async def test_score_is_a_full_forward(engine: TransformersEngine) -> None:
    ids = np.random.default_rng(0).integers(0, VOCAB, 300).astype(np.int32)
    model = engine.model  # type: ignore[attr-defined]
    wanted = reference(model, ids[:1], Completion(ids[1:], np.zeros(299, np.float32), "stop"))
    np.testing.assert_allclose(await engine.score(ids), wanted, rtol=1e-5, atol=2e-5)
    assert len(await engine.score(ids[:1])) == 0


async def test_a_call_computes_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of("qwen3")
    computed: list[int] = []
    prefill = Qwen3Forward._prefill
    monkeypatch.setattr(Qwen3Forward, "_prefill", lambda self, *a: (computed.append(len(a[1])), prefill(self, *a))[1])
    first = request(range(60), 5)  # type: ignore[arg-type]
    answer = await engine.generate(first)
    await engine.generate(first)
    await engine.generate(request([*range(60), *answer.ids.tolist(), 1, 2, 3]))
    await engine.generate(request([*range(40), 7, 7]))
    assert computed == [60, 1, 4, 2]  # of a completion, the last sampled token was never computed
    await engine.aclose()


async def test_stop_ids_end_an_answer() -> None:
    engine = engine_of("qwen3")
    engine._stop_ids = frozenset(range(VOCAB // 2))
    done = await asyncio.gather(*(engine.generate(request([n], 64)) for n in range(20)))
    for completion in done:
        assert completion.finish == "stop"
        assert completion.ids[-1] < VOCAB // 2 and (completion.ids[:-1] >= VOCAB // 2).all()
    await engine.aclose()


async def test_the_context_cuts_an_answer() -> None:
    engine = engine_of("qwen3", max_model_len=20)
    completion = await engine.generate(request([1] * 15, 100))
    assert (completion.finish, len(completion.ids)) == ("length", 5)
    for prompt, why in [
        ([1] * 20, "no room for an answer"),
        ([], "not 0 ids"),
        ([VOCAB], "from 64 to 64"),
        ([-1], "from -1"),
    ]:
        with pytest.raises(EngineError, match=why):
            await engine.generate(request(prompt))
    with pytest.raises(EngineError, match="max_tokens is 0"):
        await engine.generate(request([1], 0))
    await engine.aclose()


async def test_new_weights_drop_the_caches(engine: TransformersEngine) -> None:
    assert isinstance(engine, TrainableEngine) and engine.weight_version == 0
    one = request(list(range(50)), 6)
    assert (await engine.generate(one)).weight_version == 0
    model = engine.model  # type: ignore[attr-defined]
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kind = llama if "Llama" in type(model).__name__ else qwen3
    fresh = kind(seed=1) if kind is llama else qwen3(seed=1, tied=model.config.tie_word_embeddings)
    try:
        assert await engine.update_weights(fresh.state_dict()) == 1
        completion = await engine.generate(one)
        assert completion.weight_version == engine.weight_version == 1
        assert_exact(fresh, [one], [completion])
    finally:
        model.load_state_dict(old)


async def test_wrong_weights_are_refused(engine: TransformersEngine) -> None:
    state = dict(engine.model.state_dict())  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"lack 1 of \d+ tensors, for example model.norm.weight"):
        await engine.update_weights({name: tensor for name, tensor in state.items() if name != "model.norm.weight"})
    with pytest.raises(ConfigError, match=r"new model.norm.weight is \(3,\), the engine's \(32,\)"):
        await engine.update_weights({**state, "model.norm.weight": torch.zeros(3)})
    assert engine.weight_version == 0
    assert_exact(engine.model, [request([4], 3)], [await engine.generate(request([4], 3))])  # type: ignore[attr-defined]


@asynccontextmanager
async def held(engine: TransformersEngine) -> AsyncIterator[asyncio.Task[Completion]]:
    """A call that is in flight for as long as the block runs: its steps wait."""
    step, go = engine._forward.step, threading.Event()
    engine._forward.step = lambda: go.wait(30) and step()  # type: ignore[method-assign, assignment, func-returns-value]
    call = asyncio.create_task(engine.generate(request([1], 900)))
    while not engine._forward.rows:
        await asyncio.sleep(0.001)
    asyncio.get_running_loop().call_later(0.05, go.set)
    yield call
    engine._forward.step = step  # type: ignore[method-assign]


async def test_an_update_with_calls_in_flight_is_refused() -> None:
    engine = engine_of("qwen3")
    async with held(engine) as call:
        with pytest.raises(EngineError, match="1 calls are in flight; drain"):
            await engine.update_weights(MODELS["qwen3"].state_dict())
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    while engine._forward.rows:  # a cancelled call leaves the batch by itself
        await asyncio.sleep(0.001)
    assert await engine.update_weights(MODELS["qwen3"].state_dict()) == 1
    await engine.aclose()


async def test_broken_weights_fail_the_calls_not_the_engine() -> None:
    engine = engine_of("qwen3")
    good = MODELS["qwen3"].state_dict()
    await engine.update_weights({**good, "model.norm.weight": good["model.norm.weight"] * torch.nan})
    results = await asyncio.gather(*(engine.generate(request([n])) for n in range(3)), return_exceptions=True)
    assert all(isinstance(result, EngineError) and "aren't finite" in str(result) for result in results)
    await engine.update_weights(good)
    assert_exact(MODELS["qwen3"], [request([3])], [await engine.generate(request([3]))])
    await engine.aclose()


async def test_closing_fails_what_is_in_flight() -> None:
    engine = engine_of("qwen3")
    async with held(engine) as call:
        await engine.aclose()
    with pytest.raises(EngineError, match="was closed"):
        await call
    with pytest.raises(EngineError, match="is closed"):
        await engine.generate(request([1]))


async def test_the_shipped_policy_answers() -> None:
    engine = make_engine("transformers:tiny", seed=1)
    messages = [{"role": "user", "content": "List the files."}]
    prompt = engine.codec.render(messages)
    completion = await engine.generate(GenerateRequest(prompt, request([0], 20).sampling))
    scored = await engine.score(np.concatenate([prompt, completion.ids]))
    np.testing.assert_allclose(completion.logprobs, scored[len(prompt) - 1 :], atol=5e-5)
    assert engine.codec.parse(completion.ids, prompt)["role"] == "assistant"
    await engine.aclose()


def test_what_cannot_be_loaded_is_named(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="no causal language model could be loaded from"):
        make_engine(f"transformers:{tmp_path}")
    with pytest.raises(ConfigError, match="dtype 'int4'; valid: float32"):
        make_engine("transformers:tiny", dtype="int4")
    config = MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(ConfigError, match="a mamba model doesn't keep keys and values"):
        TransformersEngine(MambaForCausalLM(config), codec=ChatCodec.load(TINY_DIR))


def test_memory_beyond_a_row_never_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory may hold NaN, and a masked NaN is still one: rows of unequal length must not see it."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: poisoned(empty(*shape, **options)))

    async def main() -> None:
        engine = engine_of("qwen3", max_batch=4)
        asked = [request(list(range(1, n)), 12) for n in (4, 9, 30)]
        assert_exact(MODELS["qwen3"], asked, list(await asyncio.gather(*map(engine.generate, asked))))
        await engine.aclose()

    asyncio.run(main())


def poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """Filled with NaN where it can hold one."""
    return tensor.fill_(torch.nan) if tensor.is_floating_point() and not tensor.is_meta else tensor

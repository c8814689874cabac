"""Limits, versions, retries, drains, endings and records of a session, without HTTP where that is enough."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixharness.engines.base import Completion, GenerateRequest, InjectedFault, Sampling
from mixharness.engines.codec import ChatCodec
from mixharness.engines.manual import ManualEngine
from mixharness.engines.scripted import ScriptedEngine
from mixharness.errors import ConfigError, EngineError
from mixharness.limits import Limits, Outcome
from mixharness.proxy import Proxy, Session
from mixharness.proxy.dialects import DIALECTS
from mixharness.proxy.sampling import Retry
from mixharness.proxy.session import CallFailed, Refused
from mixharness.trees.call import ModelCall

from .conftest import FunctionEngine, Starter, assert_extends, bash, completion

CHAT = DIALECTS[1]


def opened(engine: Any, **options: Any) -> Session:
    return Proxy(retry=Retry(3, 0.001)).open_session("s", engine, **options)


async def begin(session: Session, text: str = "Hi.", **more: Any) -> ModelCall:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    return await session.begin(CHAT, CHAT.parse_request(body, {}, "generate"), body, {})


async def ask(session: Session, text: str = "Hi.", **more: Any) -> ModelCall:
    call = await begin(session, text, **more)
    try:
        await session.sample(call)
    finally:
        session.closed(call.index)
    return session.calls[call.index]


def says(codec: ChatCodec, text: str = "Yes.", **more: Any) -> FunctionEngine:
    async def generate(request: GenerateRequest) -> Completion:
        return completion(codec, text, **more)

    return FunctionEngine(codec, generate)


async def test_the_harness_may_only_lower_what_the_session_samples(codec: ChatCodec) -> None:
    sampling = Sampling(temperature=0.7, max_tokens=50, seed=3)
    session = opened(says(codec), sampling=sampling, limits=Limits(context_tokens=200, output_tokens=40))
    assert (await ask(session, temperature=0, max_tokens=1000, top_p=0.1)).sampling.max_tokens == 40
    assert (await ask(session, max_tokens=7)).sampling.max_tokens == 7
    words = next(n for n in range(1, 200) if codec.count([{"role": "user", "content": "word " * n}]) > 165)
    long = await ask(session, "word " * words)
    assert long.sampling.max_tokens == 200 - len(long.prompt_ids) < 40
    assert {call.sampling.temperature for call in session.calls} == {0.7}
    assert {call.sampling.seed for call in session.calls} == {3}
    assert "temperature 0 ignored" in session.calls[0].normalised


async def test_parallel_calls_share_the_token_budget(codec: ChatCodec) -> None:
    engine = ManualEngine(codec)
    session = opened(engine, limits=Limits(sampled_tokens=60, output_tokens=40))
    first, second = await begin(session, "1"), await begin(session, "2")
    tasks = [session.sample(first), session.sample(second)]
    assert (first.sampling.max_tokens, second.sampling.max_tokens) == (40, 20)
    third = asyncio.create_task(begin(session, "3"))
    await engine.wait_pending()
    await asyncio.sleep(0)
    assert not third.done()
    engine.answer("s", 0, completion(codec, "Yes."))
    await tasks[0]
    assert (await third).sampling.max_tokens == 60 - 20 - session.calls[0].sampled
    session.cancel()


async def test_an_answer_cut_by_another_s_promise_does_not_end_the_session(codec: ChatCodec) -> None:
    engine = ManualEngine(codec)
    session = opened(engine, limits=Limits(sampled_tokens=30, output_tokens=20))
    tasks = [session.sample(await begin(session, str(n))) for n in range(2)]
    await engine.wait_pending()
    await asyncio.sleep(0.01)
    cut = completion(codec, "Yes.")
    engine.answer("s", 1, replace(cut, finish="length"))
    await tasks[1]
    assert session.stop_reason is None
    engine.answer("s", 0, completion(codec, "word " * 40))
    await tasks[0]
    with pytest.raises(Refused, match="token_budget"):
        await begin(session)
    assert session.stop_reason is Outcome.TOKEN_BUDGET


@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_engine_errors_are_retried_inside(codec: ChatCodec, failures: int) -> None:
    tries: list[int] = []

    async def generate(request: GenerateRequest) -> Completion:
        tries.append(request.call)
        if len(tries) <= failures:
            raise EngineError("lost")
        return completion(codec, "Yes.")

    session = opened(FunctionEngine(codec, generate))
    if failures < 3:
        assert (await ask(session)).status == "answered"
        assert session.infra_error is None
    else:
        with pytest.raises(CallFailed):
            await ask(session)
        assert session.infra_error == "EngineError: lost"
        assert session.calls[0].status == "failed"
        with pytest.raises(Refused, match="over"):
            await ask(session)
    assert len(tries) == min(failures + 1, 3)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda c: Completion(c.ids[:0], c.logprobs[:0], "stop"), "no token"),
        (lambda c: replace(c, ids=c.ids + 1_000_000), "outside the vocabulary"),
        (lambda c: replace(c, ids=-c.ids), "outside the vocabulary"),
        (lambda c: replace(c, logprobs=np.full(len(c.ids), np.nan, np.float32)), "not a finite number"),
        (lambda c: replace(c, logprobs=np.full(len(c.ids), 0.5, np.float32)), "not a finite number"),
        (lambda c: replace(c, weight_version=-1), "older than at dispatch"),
    ],
)
async def test_what_cannot_be_trained_on_is_our_failure(codec: ChatCodec, bad: Any, reason: str) -> None:
    async def generate(request: GenerateRequest) -> Completion:
        result: Completion = bad(completion(codec, "Yes."))
        return result

    session = opened(FunctionEngine(codec, generate))
    with pytest.raises(CallFailed):
        await ask(session)
    assert reason in (session.infra_error or "")
    assert (session.calls[0].status, session.calls[0].sampled) == ("failed", 0)


async def test_an_answer_that_is_not_in_the_ids_is_our_failure(codec: ChatCodec) -> None:
    class Liar(ChatCodec):
        def parse(self, completion_ids: Any, prompt_ids: Any) -> Any:
            return {"role": "assistant", "content": "No."}

    engine = says(codec)
    engine.codec = Liar(codec.tokenizer)
    session = opened(engine)
    with pytest.raises(CallFailed):
        await ask(session)
    assert "TokenMismatch" in (session.infra_error or "")


async def test_a_bug_in_the_engine_is_reported_and_not_retried(
    codec: ChatCodec, caplog: pytest.LogCaptureFixture
) -> None:
    async def generate(request: GenerateRequest) -> Completion:
        raise ZeroDivisionError("oops")

    session = opened(FunctionEngine(codec, generate))
    with pytest.raises(CallFailed):
        await ask(session)
    assert session.infra_error == "ZeroDivisionError: oops"
    assert "oops" in caplog.text


async def test_weight_versions_are_stamped_and_never_fall(codec: ChatCodec) -> None:
    engine = says(codec, version=2)
    engine.weight_version = 2
    session = opened(engine)
    assert (await ask(session)).weight_version == 2
    engine.weight_version = 1
    with pytest.raises(CallFailed):
        await ask(session)
    assert "fell from 2 to 1" in (session.infra_error or "")


async def test_drained_waits_for_calls_and_holds_new_ones(codec: ChatCodec) -> None:
    engine = ManualEngine(codec)
    proxy = Proxy()
    session = proxy.open_session("s", engine)
    before = session.sample(await begin(session, "1"))
    await engine.wait_pending()
    events: list[str] = []

    async def update() -> None:
        async with proxy.drained():
            events.append("drained")
            assert engine.pending() == ()
            after.append(session.sample(await begin(session, "2")))
            await asyncio.sleep(0.02)
            assert engine.pending() == ()
            events.append("updated")

    after: list[Any] = []
    updating = asyncio.create_task(update())
    await asyncio.sleep(0.02)
    assert events == []
    engine.answer("s", 0, completion(codec, "Yes."))
    await asyncio.gather(before, updating)
    await engine.wait_pending()
    assert events == ["drained", "updated"]
    engine.answer("s", 1, completion(codec, "Yes."))
    await after[0]


async def test_version_rises_with_every_change_and_wakes_who_waits(codec: ChatCodec) -> None:
    engine = ManualEngine(codec)
    session = opened(engine)
    seen = [session.version]
    waiting = asyncio.create_task(session.changed(seen[-1]))
    call = await begin(session)
    seen.append(await waiting)
    snapshot = session.calls
    assert [c.status for c in snapshot] == ["pending"]
    waiting = asyncio.create_task(session.changed(session.version))
    task = session.sample(call)
    await engine.wait_pending()
    engine.answer("s", 0, completion(codec, "Yes."))
    seen.append(await waiting)
    await task
    assert [c.status for c in session.calls] == ["answered"]
    assert [c.status for c in snapshot] == ["pending"]
    session.finish()
    seen.append(session.version)
    assert seen == sorted(set(seen))


async def test_settle_waits_then_abandons(codec: ChatCodec) -> None:
    engine = ManualEngine(codec)
    session = opened(engine)
    task = session.sample(await begin(session))
    await asyncio.gather(session.settle(0.01, 0.1), return_exceptions=True)
    (call,) = session.calls
    assert (call.status, call.sampled) == ("failed", 0)
    assert "abandoned" in call.error
    assert isinstance(task.exception(), CallFailed)
    assert engine.pending() == ()
    before = asyncio.get_running_loop().time()
    await session.settle(0.01, 5)
    assert asyncio.get_running_loop().time() - before < 1


async def test_closing_a_session_abandons_its_calls_once(codec: ChatCodec) -> None:
    proxy = Proxy()
    session = proxy.open_session("s", ManualEngine(codec))
    tasks = [session.sample(await begin(session, str(n))) for n in range(3)]
    proxy.close_session("s")
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [(c.index, c.status) for c in session.calls] == [(0, "failed"), (1, "failed"), (2, "failed")]
    with pytest.raises(Refused):
        await begin(session)


async def test_injected_faults_are_not_retried_or_ours(codec: ChatCodec) -> None:
    session = opened(ScriptedEngine([{"status": 500}, {"content": "Yes."}], codec))
    with pytest.raises(InjectedFault):
        await ask(session)
    assert (session.infra_error, session.calls[0].status) == (None, "failed")
    assert (await ask(session)).status == "answered"


def test_session_ids_are_checked(codec: ChatCodec) -> None:
    proxy = Proxy()
    for bad in ("", "a/b", "../x", "a b", "é", "x" * 129):
        with pytest.raises(ConfigError, match="session id"):
            proxy.open_session(bad, says(codec))
    proxy.open_session("a", says(codec))
    with pytest.raises(ConfigError, match="already open"):
        proxy.open_session("a", says(codec))


async def test_secrets_are_long_and_differ(codec: ChatCodec) -> None:
    proxy = Proxy()
    secrets = {proxy.open_session(str(n), says(codec)).secret for n in range(10)}
    assert len(secrets) == 10
    assert min(map(len, secrets)) >= 32


async def test_equal_parts_of_requests_are_kept_once(codec: ChatCodec) -> None:
    session = opened(ScriptedEngine([{"content": "Yes."}] * 2, codec))
    system = {"role": "system", "content": "Long. " * 100}
    for messages in ([system], [system, {"role": "user", "content": "x"}]):
        body = json.loads(json.dumps({"model": "m", "messages": messages}))
        call = await session.begin(CHAT, CHAT.parse_request(body, {}, "generate"), body, {})
        await session.sample(call)
        session.closed(call.index)
    first, second = session.calls
    assert second.messages[0] is first.messages[0]
    assert second.request["messages"][0] is first.request["messages"][0]
    assert second.request == {"model": "m", "messages": [system, {"role": "user", "content": "x"}]}


async def test_a_recorded_session_replays_to_the_same_tree(live: Starter, codec: ChatCodec, tmp_path: Path) -> None:
    script = [
        {"reasoning": "Hm.", "content": "Look.", "tool_calls": [bash("ls")]},
        {"status": 529},
        {"status": "cut", "answer": {"content": "A long answer, cut."}},
        {"content": "Done."},
    ]
    served = await live(script, record=tmp_path / "records")
    client, history = served.openai(), [{"role": "user", "content": "Hi."}]
    first = await client.chat.completions.create(model="m", messages=history)  # type: ignore[arg-type]
    history += [json.loads(first.choices[0].message.model_dump_json(exclude_none=True))]
    history += [{"role": "tool", "tool_call_id": history[1]["tool_calls"][0]["id"], "content": "x"}]  # type: ignore[index]
    for _ in range(3):
        try:
            await client.chat.completions.create(model="m", messages=history)  # type: ignore[arg-type]
        except Exception as error:  # the two faults, each in the SDK's own class
            assert "Error" in type(error).__name__
    await served.session.settle(0.05)
    assert_extends(served.session, 3, 0)
    lines = [json.loads(line) for line in (tmp_path / "records" / "s.jsonl").read_text().splitlines()]
    assert [line["response"]["status"] for line in lines] == [200, 500, "cut", 200]
    session = opened(ScriptedEngine([], codec))
    for line in lines:
        session.replay(line["path"], line["headers"], line["request"], line["response"], at=line["t"])
    for live_call, replayed in zip(served.session.calls, session.calls, strict=True):
        assert (replayed.status, replayed.extends, replayed.fork) == (
            live_call.status,
            live_call.extends,
            live_call.fork,
        )
        assert replayed.prompt_ids.tolist() == live_call.prompt_ids.tolist()
        assert replayed.completion_ids.tolist() == live_call.completion_ids.tolist()
        assert replayed.answer == live_call.answer


async def test_finished_within_limits_has_no_stop_reason(codec: ChatCodec) -> None:
    session = opened(says(codec), limits=Limits(calls=1))
    await ask(session)
    assert session.stop_reason is None
    with pytest.raises(Refused, match="turn_limit"):
        await ask(session)
    assert session.stop_reason is Outcome.TURN_LIMIT

"""The openai SDK against a live proxy: Chat Completions, whole and streamed."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import pytest

from mixharness.limits import Limits, Outcome

from .conftest import CHAT_TOOLS as TOOLS
from .conftest import Starter, assert_extends, bash

USER = {"role": "user", "content": "Count the files."}


async def ask(client: openai.AsyncOpenAI, messages: list[Any], *, stream: bool, **more: Any) -> Any:
    """The message as a dict, the finish reason and the usage."""
    options: dict[str, Any] = {"model": "policy", "tools": TOOLS, "messages": messages, **more}
    if not stream:
        whole = await client.chat.completions.create(**options)
        return whole.choices[0].message.model_dump(exclude_none=True), whole.choices[0].finish_reason, whole.usage
    message: dict[str, Any] = {"role": None, "content": "", "reasoning_content": "", "tool_calls": {}}
    finish = usage = None
    options |= {"stream": True, "stream_options": {"include_usage": True}}
    async for chunk in await client.chat.completions.create(**options):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            _merge(message, choice.delta.model_dump(exclude_none=True))
    message["tool_calls"] = [message["tool_calls"][index] for index in sorted(message["tool_calls"])]
    return {key: value for key, value in message.items() if value}, finish, usage


def _merge(message: dict[str, Any], delta: dict[str, Any]) -> None:
    message["role"] = delta.get("role", message["role"])
    message["content"] += delta.get("content", "")
    message["reasoning_content"] += delta.get("reasoning_content", "")
    for part in delta.get("tool_calls", ()):
        call = message["tool_calls"].setdefault(part["index"], {"function": {"arguments": ""}})
        call |= {key: part[key] for key in ("id", "type") if key in part}
        function = part["function"]
        call["function"] |= {"name": function["name"]} if "name" in function else {}
        call["function"]["arguments"] += function["arguments"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("unix", [False, True])
async def test_two_turns_with_parallel_tools(live: Starter, stream: bool, unix: bool) -> None:
    script = [
        {"reasoning": "Two ways.", "content": "Looking.", "tool_calls": [bash("ls"), bash("find . -name '*.é'")]},
        {"content": "Three files."},
    ]
    served = await live(script)
    client = served.openai(unix=unix)
    system = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    first, finish, usage = await ask(client, [system, USER], stream=stream)
    assert finish == "tool_calls"
    assert (first["content"], first["reasoning_content"]) == ("Looking.", "Two ways.")
    assert first["tool_calls"][1]["function"] == {"name": "bash", "arguments": '{"command":"find . -name \'*.é\'"}'}
    call = served.session.calls[0]
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(call.prompt_ids), call.sampled)
    assert usage.total_tokens == len(call.prompt_ids) + call.sampled
    results = [{"role": "tool", "tool_call_id": c["id"], "content": c["id"]} for c in first["tool_calls"]]
    second, finish, _ = await ask(client, [system, USER, first, *results], stream=stream)
    assert (second["content"], finish) == ("Three files.", "stop")
    assert_extends(served.session, 1, 0)
    assert served.session.calls[1].messages[0] == {"role": "system", "content": "Be brief."}


async def test_a_client_that_drops_reasoning_and_ids_and_rewrites_arguments(live: Starter) -> None:
    served = await live(
        [{"reasoning": "Hm.", "content": " Look \n", "tool_calls": [bash("ls", n=1.0)]}, {"content": ""}]
    )
    client = served.openai()
    await ask(client, [USER], stream=True)
    function = {"name": "bash", "arguments": '{"n": 1, "command": "ls"}'}
    answer = {
        "role": "assistant",
        "content": "Look",
        "tool_calls": [{"id": "x", "type": "function", "function": function}],
    }
    await ask(client, [USER, answer, {"role": "tool", "tool_call_id": "x", "content": "a"}], stream=True)
    assert_extends(served.session, 1, 0)
    assert set(served.session.calls[1].normalised) == {
        "answer came back with other white space",
        "answer came back without its reasoning",
        "answer came back with other tool-call ids",
    }


async def test_usage_only_when_asked_for(live: Starter) -> None:
    served = await live([{"content": "Yes."}])
    stream = await served.openai().chat.completions.create(model="policy", messages=[USER], stream=True)  # type: ignore[call-overload]
    assert [chunk.usage for chunk in [chunk async for chunk in stream] if chunk.usage] == []


@pytest.mark.parametrize("stream", [False, True])
async def test_overflow_reads_as_openai_s(live: Starter, stream: bool) -> None:
    served = await live([{"content": "Fine."}], limits=Limits(context_tokens=1000))
    with pytest.raises(openai.BadRequestError, match="maximum context length is 999 tokens") as caught:
        await ask(served.openai(), [{"role": "user", "content": "word " * 1500}], stream=stream)
    assert caught.value.code == "context_length_exceeded"
    assert served.session.stop_reason is Outcome.CONTEXT_OVERFLOW


async def test_spent_budgets_refuse_for_good(live: Starter) -> None:
    served = await live([{"content": "word " * 50}] * 3, limits=Limits(sampled_tokens=40))
    client = served.openai(retries=2)
    _, finish, usage = await ask(client, [USER], stream=True)
    assert (finish, usage.completion_tokens) == ("length", 40)
    assert served.session.stop_reason is Outcome.TOKEN_BUDGET
    with pytest.raises(openai.BadRequestError, match="token_budget"):
        await ask(client, [USER], stream=True)
    assert served.session.refusals["over"] == 1
    assert len(served.session.calls) == 1


async def test_turn_limit_counts_answers_not_faults(live: Starter) -> None:
    served = await live([{"status": 500}, {"content": "1"}, {"content": "2"}], limits=Limits(calls=2))
    client = served.openai(retries=1)
    for _ in range(2):
        await ask(client, [USER], stream=False)
    assert served.session.stop_reason is None
    with pytest.raises(openai.BadRequestError, match="turn_limit"):
        await ask(client, [USER], stream=False)
    assert served.session.stop_reason is Outcome.TURN_LIMIT


@pytest.mark.parametrize("stream", [False, True])
async def test_cut_and_reset_look_like_broken_connections(live: Starter, stream: bool) -> None:
    cut = {"status": "cut", "answer": {"content": "A long answer. " * 20}}
    served = await live([{"status": "reset"}, cut, {"content": "Yes."}])
    for _ in range(2):
        with pytest.raises((openai.APIConnectionError, httpx2.RemoteProtocolError)):
            await ask(served.openai(), [USER], stream=stream)
    answer, _, _ = await ask(served.openai(), [USER], stream=stream)
    assert answer["content"] == "Yes."
    reset, cut_call, last = served.session.calls
    assert (reset.status, reset.sampled) == ("failed", 0)
    assert cut_call.status == "failed"
    assert cut_call.text.startswith("A long answer.")
    assert last.fork == "new"


async def test_models_are_listed_in_both_shapes(live: Starter) -> None:
    served = await live([])
    assert [model.id async for model in served.openai().models.list()] == ["policy"]
    assert [model.id async for model in served.anthropic().models.list()] == ["policy"]
    assert (await served.openai().models.retrieve("other")).id == "other"

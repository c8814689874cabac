"""The anthropic SDK against a live proxy: what it sends is understood and what it gets it accepts."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from mixharness.limits import Limits, Outcome

from .conftest import ANTHROPIC_TOOLS as TOOLS
from .conftest import Starter, assert_extends, bash

USER = {"role": "user", "content": "Count the files."}


async def ask(client: anthropic.AsyncAnthropic, messages: list[Any], *, stream: bool, **more: Any) -> Any:
    options: dict[str, Any] = {"model": "policy", "max_tokens": 500, "system": "Be brief.", "tools": TOOLS, **more}
    if not stream:
        return await client.messages.create(messages=messages, **options)
    async with client.messages.stream(messages=messages, **options) as events:
        return await events.get_final_message()


def resent(answer: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("unix", [False, True])
async def test_two_turns_with_parallel_tools_and_an_error(live: Starter, stream: bool, unix: bool) -> None:
    script = [
        {"reasoning": "Two ways.", "content": "Looking.", "tool_calls": [bash("ls"), bash("find .", n=1.0)]},
        {"content": "Three files."},
    ]
    served = await live(script)
    client = served.anthropic(unix=unix)
    first = await ask(client, [USER], stream=stream)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert first.content[0].thinking == "Two ways."
    assert first.content[1].text == "Looking."
    assert [block.input for block in first.content[2:]] == [{"command": "ls"}, {"command": "find .", "n": 1.0}]
    assert len({block.id for block in first.content[2:]}) == 2
    assert first.stop_reason == "tool_use"
    call = served.session.calls[0]
    assert (first.usage.input_tokens, first.usage.output_tokens) == (len(call.prompt_ids), call.sampled)
    results = [
        {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "a b c"},
        {
            "type": "tool_result",
            "tool_use_id": first.content[3].id,
            "content": [{"type": "text", "text": "no find"}],
            "is_error": True,
        },
        {"type": "text", "text": "Hurry."},
    ]
    second = await ask(client, [USER, resent(first), {"role": "user", "content": results}], stream=stream)
    assert second.stop_reason == "end_turn"
    assert second.content[0].text == "Three files."
    assert_extends(served.session, 1, 0)
    assert [m["role"] for m in served.session.calls[1].messages] == [
        *("system", "user", "assistant", "tool", "tool", "user")
    ]
    assert [m["content"] for m in served.session.calls[1].messages[3:]] == ["a b c", "Error: no find", "Hurry."]
    assert [m["name"] for m in served.session.calls[1].messages[3:5]] == ["bash", "bash"]


async def test_thinking_that_comes_back_by_signature_alone(live: Starter) -> None:
    served = await live([{"reasoning": "Because.", "content": "Yes."}, {"content": "No."}, {"content": "Hm."}])
    client = served.anthropic()
    first = await ask(client, [USER], stream=True)
    signature = first.content[0].signature
    assert signature
    answer = {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": signature}]}
    answer["content"].append({"type": "text", "text": "Yes."})
    await ask(client, [USER, answer, USER], stream=True)
    assert_extends(served.session, 1, 0)
    assert served.session.calls[1].messages[2]["reasoning_content"] == "Because."
    await ask(client, [USER, answer, USER], stream=True, tools=[])
    assert served.session.calls[2].fork == "tools_changed"
    assert served.session.calls[2].messages[2]["reasoning_content"] == "Because."


async def test_count_tokens_is_what_the_call_then_uses(live: Starter) -> None:
    served = await live([{"content": "", "tool_calls": [bash("ls")]}, {"content": "Done."}])
    client = served.anthropic()
    first = await ask(client, [USER], stream=False)
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "x"}
    messages: Any = [USER, resent(first), {"role": "user", "content": [result]}]
    count = await client.messages.count_tokens(model="policy", system="Be brief.", tools=TOOLS, messages=messages)
    assert len(served.session.calls) == 1
    second = await ask(client, messages, stream=False)
    assert count.input_tokens == second.usage.input_tokens == len(served.session.calls[1].prompt_ids)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_empty_answer_still_has_a_block(live: Starter, stream: bool) -> None:
    served = await live([{"content": ""}])
    answer = await ask(served.anthropic(), [USER], stream=stream)
    assert [(block.type, block.text) for block in answer.content] == [("text", "")]
    assert answer.usage.output_tokens == 1


async def test_a_long_answer_is_cut_at_the_harness_s_own_bound(live: Starter) -> None:
    served = await live([{"content": "word " * 200}])
    answer = await ask(served.anthropic(), [USER], stream=True, max_tokens=20)
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 20)
    assert served.session.calls[0].finish == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_overflow_reads_as_anthropic_s_and_passes(live: Starter, stream: bool) -> None:
    served = await live([{"content": "Fine."}], limits=Limits(context_tokens=1000))
    client = served.anthropic()
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 999 maximum") as caught:
        await ask(client, [{"role": "user", "content": "word " * 1500}], stream=stream)
    assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
    assert served.session.stop_reason is Outcome.CONTEXT_OVERFLOW
    assert served.session.calls == ()
    await ask(client, [USER], stream=stream)
    assert served.session.stop_reason is None


@pytest.mark.parametrize(
    ("status", "error"),
    [(429, anthropic.RateLimitError), (529, anthropic.InternalServerError), (500, anthropic.InternalServerError)],
)
async def test_injected_statuses_pass_through_and_the_sdk_retries(
    live: Starter, status: int, error: type[Exception]
) -> None:
    served = await live([{"status": status}, {"status": status}, {"content": "Yes."}])
    with pytest.raises(error):
        await ask(served.anthropic(), [USER], stream=True)
    answer = await ask(served.anthropic(retries=1), [USER], stream=True)
    assert answer.content[0].text == "Yes."
    assert [call.status for call in served.session.calls] == ["failed", "failed", "answered"]
    assert served.session.infra_error is None
    first, last = served.session.calls[0], served.session.calls[2]
    assert first.prompt_ids is last.prompt_ids


async def test_a_finished_session_refuses_for_good(live: Starter) -> None:
    served = await live([{"content": "Yes."}])
    served.session.finish()
    with pytest.raises(anthropic.BadRequestError, match="This session is over"):
        await ask(served.anthropic(retries=2), [USER], stream=True)
    assert served.session.refusals["over"] == 1

"""The codec against transformers' chat template, and as the inverse of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mixharness.engines.codec import ChatCodec, Message
from mixharness.engines.tiny import TINY_DIR
from mixharness.errors import ConfigError

CODEC = ChatCodec.load(TINY_DIR)
TOOLS = ({"name": "bash", "description": "Runs a command.", "parameters": {"type": "object", "properties": {}}},)
USER = {"role": "user", "content": "Hi."}
PROMPT = CODEC.render([USER])

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=60)
name = st.from_regex(r"[A-Za-z][\w-]{0,20}", fullmatch=True).filter(str.isascii)
value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def answers(draw: st.DrawFn, reasoning: bool = True) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw(text)}
    if reasoning and draw(st.booleans()):
        message["reasoning_content"] = draw(text.map(str.strip).filter(bool))
        message["content"] = message["content"].lstrip("\n")
    calls = draw(st.lists(st.tuples(name, st.dictionaries(text, value, max_size=3)), max_size=3))
    if calls:
        message["tool_calls"] = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    return message


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """System or not, then users, answers and tool results; ends where a model would answer."""
    messages = [*draw(st.sampled_from([[], [{"role": "system", "content": draw(text)}]])), USER]
    for _ in range(draw(st.integers(0, 3))):
        answer = draw(answers(reasoning=False))
        # A leading newline would merge with the one before it; sampled ones come after it, and the renderer keeps that.
        answer["content"] = answer["content"].lstrip()
        messages.append(answer)
        if answer.get("tool_calls"):
            messages += [{"role": "tool", "content": draw(text), "tool_call_id": "x"} for _ in answer["tool_calls"]]
        else:
            messages.append({"role": "user", "content": draw(text)})
    return messages


def without_ids(message: Message) -> dict[str, Any]:
    plain = dict(message)
    if "tool_calls" in plain:
        plain["tool_calls"] = [{key: call[key] for key in ("type", "function")} for call in plain["tool_calls"]]
    return plain


@settings(max_examples=40, deadline=None)
@given(messages=conversations(), tools=st.sampled_from([(), TOOLS]))
def test_a_full_render_equals_the_chat_template(messages: list[dict[str, Any]], tools: Any) -> None:
    wanted = CODEC.tokenizer.apply_chat_template(
        messages,
        tools=[{"type": "function", "function": tool} for tool in tools] or None,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    ids = CODEC.render(messages, tools)
    assert ids.dtype == np.int32 and ids.tolist() == wanted
    assert CODEC.count(messages, tools) == len(wanted)
    assert CODEC.decode(ids).endswith("<|im_start|>assistant\n")


@settings(max_examples=40, deadline=None)
@given(answer=answers())
def test_parse_inverts_encode_answer(answer: dict[str, Any]) -> None:
    ids = CODEC.encode_answer([USER], (), answer)
    assert ids[-1] in CODEC.stop_ids and not set(ids[:-1].tolist()) & CODEC.stop_ids
    message = CODEC.parse(ids, PROMPT)
    assert without_ids(message) == answer
    calls = [call["id"] for call in message.get("tool_calls", ())]
    assert len(set(calls)) == len(calls)


@settings(max_examples=40, deadline=None)
@given(messages=conversations(), answer=answers(reasoning=False), new=st.lists(text, min_size=1, max_size=3))
def test_a_bridge_equals_a_full_render_of_what_was_sampled(
    messages: list[dict[str, Any]], answer: dict[str, Any], new: list[str]
) -> None:
    role = "tool" if answer.get("tool_calls") else "user"
    tail = [{"role": role, "content": content} for content in new]
    prompt, completion = CODEC.render(messages, TOOLS), CODEC.encode_answer(messages, TOOLS, answer)
    bridged = CODEC.bridge(prompt, completion, tail, TOOLS)
    assert bridged is not None and bridged.dtype == np.int32
    assert bridged.tolist() == CODEC.render([*messages, answer, *tail], TOOLS).tolist()


@settings(max_examples=40, deadline=None)
@given(
    ids=st.lists(st.integers(0, CODEC.vocab_size - 1), max_size=40),
    stop=st.sampled_from([(), *((i,) for i in CODEC.stop_ids)]),
    role=st.sampled_from(["user", "tool"]),
)
def test_whatever_was_sampled_is_extended_or_refused(ids: list[int], stop: tuple[int, ...], role: str) -> None:
    completion = np.array([i for i in ids if i not in CODEC.stop_ids] + list(stop), np.int32)
    message = CODEC.parse(completion, PROMPT)
    assert message["role"] == "assistant" and isinstance(message["content"], str)
    bridged = CODEC.bridge(PROMPT, completion, [{"role": role, "content": "go on"}])
    if bridged is None:
        assert "<think>" in CODEC.decode(completion)  # a stop inside an open think block can't be extended
    else:
        assert bridged[: len(PROMPT) + len(completion)].tolist() == [*PROMPT.tolist(), *completion.tolist()]


def test_an_answer_cut_by_its_length_is_closed() -> None:
    completion = CODEC.encode("half of")
    bridged = CODEC.bridge(PROMPT, completion, [USER])
    assert bridged is not None
    assert CODEC.decode(bridged[len(PROMPT) :]) == (
        "half of<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n"
    )


GOOD = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@pytest.mark.parametrize(
    "bad",
    [
        '<tool_call>\n{"name": \n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {}}',
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": 3, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": "ls"}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": NaN}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": "\\ud800"}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": 99999999999999999999}}\n</tool_call>',
        "<tool_call>" + "[" * 5000 + "</tool_call>",
        "<tool_call>" + "1" * 5000 + "</tool_call>",
        "</tool_call>",
        "</think>",
    ],
)
def test_a_malformed_tool_call_stays_in_the_content(bad: str) -> None:
    assert CODEC.parse(CODEC.encode(f"Look.\n{bad}<|im_end|>"), PROMPT) == {
        "role": "assistant",
        "content": f"Look.\n{bad}",
    }


def test_text_around_calls_is_kept() -> None:
    message = CODEC.parse(CODEC.encode(f"one\n{GOOD}\n{GOOD} two <tool_call>no</tool_call>{GOOD} three"), PROMPT)
    assert message["content"] == "one two <tool_call>no</tool_call> three"
    assert [call["function"] for call in message["tool_calls"]] == [{"name": "f", "arguments": {"a": 1}}] * 3


@pytest.mark.parametrize(
    ("sampled", "reasoning", "content"),
    [
        ("<think>\nhm\n</think>\n\nyes", "hm", "yes"),
        ("<think>hm</think>yes</think>no", "hm", "yes</think>no"),
        ("<think>\n\n</think>\n\nyes", None, "yes"),
        ("<think>hm", "hm", ""),
        ("yes <think>hm</think>", None, "yes <think>hm</think>"),
        ("<think>hm<tool_call>no</tool_call>", "hm", "<tool_call>no</tool_call>"),
        (f"<think>hm{GOOD} rest", "hm", " rest"),
    ],
)
def test_reasoning(sampled: str, reasoning: str | None, content: str) -> None:
    message = CODEC.parse(CODEC.encode(sampled), PROMPT)
    assert (message.get("reasoning_content"), message["content"]) == (reasoning, content)


def test_tool_call_ids_repeat_with_the_tokens_and_differ_between_calls() -> None:
    ids = CODEC.encode(GOOD)
    longer = CODEC.render([USER, {"role": "assistant", "content": ""}, USER])
    first, again, other = (CODEC.parse(ids, prompt)["tool_calls"][0]["id"] for prompt in (PROMPT, PROMPT, longer))
    assert first == again != other


def test_decode_shows_every_token_and_text_stops() -> None:
    ids = CODEC.encode("<think>a</think><|im_end|>b")
    assert CODEC.decode(ids) == "<think>a</think><|im_end|>b"
    assert CODEC.text(ids) == "<think>a</think>"


def plain_tokenizer(template: str) -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(TINY_DIR))
    tokenizer.chat_template = template
    return tokenizer


def test_a_qwen_template_that_thinks_off_is_recognised() -> None:
    template = str(CODEC.tokenizer.chat_template).replace(
        "{{- '<|im_start|>assistant\\n' }}{%- endif %}",
        "{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{%- endif %}",
    )
    assert template != CODEC.tokenizer.chat_template
    codec = ChatCodec(
        plain_tokenizer(template.replace("{%- generation %}", "{%- generation %}{{- '<think>\\n\\n</think>\\n\\n' }}"))
    )
    assert not codec.renderer.config.enable_thinking
    answer = {"role": "assistant", "content": "Yes."}
    assert codec.text(codec.encode_answer([USER], (), answer)) == "Yes."
    assert codec.parse(codec.encode("Yes.<|im_end|>"), codec.render([USER])) == answer


def test_an_unknown_template_is_rendered_as_it_is() -> None:
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    codec = ChatCodec(plain_tokenizer(template))
    prompt = codec.render([USER])
    assert codec.decode(prompt) == "[user]Hi.<|im_end|>[assistant]"
    completion = codec.encode_answer([USER], (), {"role": "assistant", "content": "Yes."})
    assert codec.decode(completion) == "Yes.<|im_end|>"
    assert codec.parse(completion, prompt) == {"role": "assistant", "content": "Yes."}
    assert codec.bridge(prompt, completion, [USER]) is None


def test_a_template_that_rewrites_its_generation_prompt_is_refused() -> None:
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}go{% endif %}"
    )
    with pytest.raises(ConfigError, match="can't be turned into ids"):
        ChatCodec(plain_tokenizer(template)).encode_answer([USER], (), {"role": "assistant", "content": "Yes."})


def test_what_cannot_be_loaded_is_named(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="no tokenizer could be loaded from"):
        ChatCodec.load(tmp_path)
    plain_tokenizer("").save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match="has no chat template"):
        ChatCodec.load(tmp_path)


def test_a_stray_end_of_reasoning_loses_nothing_before_it() -> None:
    codec = ChatCodec.load(TINY_DIR)
    prompt = codec.render([{"role": "user", "content": "Hi."}])
    assert codec.parse(codec.encode("<tool_call></think>"), prompt)["content"] == "<tool_call></think>"

"""The tiny policy's parts: a tokenizer that loses nothing, a model that transformers loads."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from mixharness.engines.codec import ChatCodec
from mixharness.engines.qwen3 import is_supported
from mixharness.engines.tiny import TINY_DIR
from mixharness.engines.tiny.build import CONTEXT, CONTROL_TOKENS, MARKUP_TOKENS, build_model, train_tokenizer
from mixharness.engines.tiny.corpus import corpus


@cache
def fresh() -> Any:
    return train_tokenizer(corpus(documents=100), vocab_size=600)


any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200) | st.lists(
    st.sampled_from(["<|im_start|>", "</tool_call>", "\r\n", "  ", "\t", "\x00", "12,5", "don't", "é", "\u200b", "🙂"])
).map("".join)


@settings(max_examples=200, deadline=None)
@given(text=any_text)
def test_any_text_round_trips(text: str) -> None:
    for tokenizer in (fresh(), ChatCodec.load(TINY_DIR).tokenizer):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_the_vocabulary_has_all_bytes_and_chat_tokens() -> None:
    tokenizer = fresh()
    assert len(tokenizer) <= 600
    for token in (*CONTROL_TOKENS, *MARKUP_TOKENS):
        assert tokenizer.encode(f"a{token}b", add_special_tokens=False)[1] == tokenizer.convert_tokens_to_ids(token)
    assert tokenizer.eos_token == "<|im_end|>"
    assert not set(MARKUP_TOKENS) & set(tokenizer.all_special_tokens)


def test_the_template_marks_what_is_generated() -> None:
    tokenizer = ChatCodec.load(TINY_DIR).tokenizer
    messages = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "?"},
    ]
    out = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True, tokenize=True)
    marked = [i for i, mine in zip(out["input_ids"], out["assistant_masks"], strict=True) if mine]
    assert tokenizer.decode(marked) == "Yes.<|im_end|>"


def test_the_corpus_repeats() -> None:
    assert list(corpus(1, 20)) == list(corpus(1, 20)) != list(corpus(2, 20))


def test_the_model_is_small_and_lean() -> None:
    model: Any = build_model(3072)
    assert 0.5e6 < model.num_parameters() < 2e6
    assert is_supported(model.config, model.dtype)
    shipped = AutoConfig.from_pretrained(TINY_DIR)
    assert shipped.model_type == "qwen3" and shipped.max_position_embeddings == CONTEXT
    assert shipped.vocab_size >= ChatCodec.load(TINY_DIR).vocab_size
    assert sum(file.stat().st_size for file in TINY_DIR.iterdir()) < 12 * 2**20

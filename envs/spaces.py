"""The spaces of the envs: a call tree as observation, a completion as action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from mixharness.engines.base import Completion, Sampling
from mixharness.trees.call import ModelCall
from mixharness.trees.tree import CallTree

Action = Completion | str | Sequence[int] | np.ndarray
"""What `step` takes: a completion, token ids, or text (tokenised, with the stop token added)."""


class CallTreeSpace(Space[CallTree]):
    """Every call tree. Samples are chains of one to three answered calls with random ids."""

    def __init__(self, vocab_size: int, seed: int | np.random.Generator | None = None) -> None:
        self.vocab_size = vocab_size
        super().__init__(None, None, seed)

    def sample(self, mask: Any = None, probability: Any = None) -> CallTree:
        prompt = self._ids(4)
        calls: list[ModelCall] = []
        for index in range(int(self.np_random.integers(1, 4))):
            answer = self._ids(3)
            calls.append(_answered(index, prompt, answer))
            prompt = np.concatenate([prompt, answer, self._ids(2)])
        return CallTree(tuple(calls))

    def _ids(self, length: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        return self.np_random.integers(0, self.vocab_size, length).astype(np.int32)

    def contains(self, x: Any) -> bool:
        return isinstance(x, CallTree)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallTreeSpace) and self.vocab_size == other.vocab_size

    __hash__ = Space.__hash__

    def __repr__(self) -> str:
        return f"CallTreeSpace(vocab_size={self.vocab_size})"


class CompletionSpace(Space[Action]):
    """Answers of up to max_tokens ids below vocab_size; text is accepted too. Samples are completions."""

    def __init__(self, vocab_size: int, max_tokens: int, seed: int | np.random.Generator | None = None) -> None:
        self.vocab_size, self.max_tokens = vocab_size, max_tokens
        super().__init__(None, None, seed)

    def sample(self, mask: Any = None, probability: Any = None) -> Completion:
        length = int(self.np_random.integers(1, min(self.max_tokens, 32) + 1))
        ids = self.np_random.integers(0, self.vocab_size, length).astype(np.int32)
        return Completion(ids, np.full(length, -np.log(self.vocab_size), np.float32), "length")

    def contains(self, x: Any) -> bool:
        if isinstance(x, str):
            return True
        ids = np.asarray(x.ids if isinstance(x, Completion) else x)
        if ids.ndim != 1 or not 0 < len(ids) <= self.max_tokens or not np.issubdtype(ids.dtype, np.integer):
            return False
        return bool(ids.min() >= 0 and ids.max() < self.vocab_size)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompletionSpace) and (self.vocab_size, self.max_tokens) == (
            other.vocab_size,
            other.max_tokens,
        )

    __hash__ = Space.__hash__

    def __repr__(self) -> str:
        return f"CompletionSpace(vocab_size={self.vocab_size}, max_tokens={self.max_tokens})"


def _answered(index: int, prompt: np.ndarray, answer: np.ndarray) -> ModelCall:
    return ModelCall(
        index=index,
        dialect="chat",
        messages=({"role": "user", "content": ""},),
        tools=(),
        sampling=Sampling(),
        prompt_ids=prompt,
        completion_ids=answer,
        logprobs=np.zeros(len(answer), np.float32),
        answer={"role": "assistant", "content": ""},
        status="answered",
        finish="stop",
        extends=index - 1 if index else None,
    )

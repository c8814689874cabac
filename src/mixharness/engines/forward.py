"""What the decode loop needs of a model: rows that run together, one token each a step.

Two implement it: `qwen3.Qwen3Forward`, lean, for Qwen3-architecture models in fp32, and `hf.HfForward` for every other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from mixharness.engines.base import LogProbs, TokenIds
from mixharness.engines.prefix_cache import KeyValues


@dataclass(eq=False)
class Row:
    """One running sequence.

    Attributes:
        ids: int32 [capacity], the prompt and room for the completion.
        length: how many of them are known; the keys and values of all but the last may be computed.
    """

    ids: TokenIds
    length: int

    def append(self, token: int) -> None:
        """Adds a sampled token."""
        self.ids[self.length] = token
        self.length += 1


class Forward(Protocol):
    """A model with a running batch. `rows` are in batch order, which may change with every add and remove."""

    rows: list[Any]

    @property
    def bytes_per_token(self) -> int:
        """Size of one token's keys and values."""
        ...

    def add(self, row: Row, past: Sequence[KeyValues]) -> Tensor:
        """Puts a row into the batch: computes the ids after `past`, returns the last one's logits, fp32 [vocab]."""
        ...

    def step(self) -> Tensor:
        """Computes every row's last id; fp32 logits [rows, vocab]."""
        ...

    def key_values(self, row: Row, start: int, stop: int) -> KeyValues:
        """A copy of the keys and values of a row's tokens start to stop."""
        ...

    def remove(self, row: Row) -> None:
        """Takes a row out of the batch."""
        ...

    def clear(self) -> None:
        """Takes every row out."""
        ...

    def score(self, ids: TokenIds) -> LogProbs:
        """Log-probs of ids[1:] from one forward over the whole sequence of two or more: float32 [n-1]."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Replaces the weights by a state dict under the model's own names.

        Raises:
            ConfigError: a name is missing or a shape differs.
        """
        ...


def check_state(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raises ConfigError unless `state` has every wanted name in the wanted shape."""
    from mixharness.errors import ConfigError

    missing = sorted(set(wanted) - set(state))
    if missing:
        raise ConfigError(f"the new weights lack {len(missing)} of {len(wanted)} tensors, for example {missing[0]}")
    for name, tensor in wanted.items():
        if state[name].shape != tensor.shape:
            raise ConfigError(f"the new {name} is {tuple(state[name].shape)}, the engine's {tuple(tensor.shape)}")


def token_logprobs(logits: Tensor, ids: TokenIds) -> LogProbs:
    """Log-probs of ids [n] under logits [n, vocab]: float32 [n]."""
    import torch

    wanted = torch.from_numpy(np.asarray(ids, np.int64)).to(logits.device)
    picked = logits.float().log_softmax(-1).gather(-1, wanted[:, None])[:, 0]
    result: LogProbs = picked.cpu().numpy().astype(np.float32)
    return result

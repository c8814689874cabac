"""Any transformers causal language model as a Forward: one padded cache for the running batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from mixharness.engines.base import LogProbs, TokenIds
from mixharness.engines.forward import Row, check_state, token_logprobs
from mixharness.engines.prefix_cache import KeyValues
from mixharness.errors import ConfigError

_CHUNK = 1024


class HfForward:
    """See `forward.Forward`. A token's keys and values: one tensor [kv_heads, n, d] for each layer's keys, then values.

    Args:
        model: a transformers causal language model whose layers all keep keys and values; it is used in place.

    Raises:
        ConfigError: the model keeps another kind of state (recurrent layers): it can't share prefixes.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.rows: list[Row] = []
        self._fresh: dict[Row, KeyValues] = {}
        self._cache: DynamicCache | None = None
        self._batch: list[Row] = []
        self._bytes_per_token = self._probe()

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of all layers."""
        return self._bytes_per_token

    @torch.inference_mode()
    def add(self, row: Row, past: Sequence[KeyValues]) -> Tensor:
        """Prefills what `past` lacks, a chunk at a time; logits of the last id, [vocab]."""
        cache = _filled([torch.cat(parts, -2)[None] for parts in zip(*past, strict=True)])
        start = sum(kv[0].shape[-2] for kv in past)
        ids = self._tensor(row.ids[start : row.length])[None]
        for at in range(0, ids.shape[1], _CHUNK):
            part = ids[:, at : at + _CHUNK]
            positions = torch.arange(start + at, start + at + part.shape[1], device=ids.device)[None]
            out = self.model(part, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1)
        self.rows.append(row)
        self._fresh[row] = tuple(tensor[0] for tensor in _tensors(cache))
        logits: Tensor = out.logits[0, -1].float()
        return logits

    @torch.inference_mode()
    def step(self) -> Tensor:
        """One token for every row."""
        if self._batch != self.rows:
            self._rebuild()
        lengths = torch.tensor([row.length for row in self.rows], device=self.model.device)
        width = int(lengths.max())
        mask = (torch.arange(width, device=lengths.device) >= width - lengths[:, None]).long()
        ids = self._tensor(np.array([row.ids[row.length - 1] for row in self.rows]))[:, None]
        out = self.model(
            ids,
            attention_mask=mask,
            position_ids=(lengths - 1)[:, None],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = out.logits[:, -1].float()
        return logits

    def key_values(self, row: Row, start: int, stop: int) -> KeyValues:
        """Two tensors [kv_heads, stop - start, d] a layer."""
        return tuple(tensor[..., start:stop, :].clone() for tensor in self._known(row))

    def remove(self, row: Row) -> None:
        """The batch is rebuilt at the next step."""
        self.rows.remove(row)
        self._fresh.pop(row, None)

    def clear(self) -> None:
        """Forgets the rows."""
        self.rows.clear()
        self._fresh.clear()
        self._batch, self._cache = [], None

    @torch.inference_mode()
    def score(self, ids: TokenIds) -> LogProbs:
        """One forward over the whole sequence."""
        known = self._tensor(ids[:-1])[None]
        logits = self.model(known, use_cache=False).logits[0]
        parts = range(0, len(ids) - 1, _CHUNK)
        return np.concatenate([token_logprobs(logits[a : a + _CHUNK], ids[1 + a : 1 + a + _CHUNK]) for a in parts])

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copies into the model's own tensors; tied names may be missing."""
        own = self.model.state_dict()
        tied = {tensor.data_ptr(): name for name, tensor in own.items() if name in state}
        wanted = {name: t for name, t in own.items() if name in state or t.data_ptr() not in tied}
        check_state(state, wanted)
        with torch.no_grad():
            for name, tensor in wanted.items():
                tensor.copy_(state[name])

    def _probe(self) -> int:
        with torch.inference_mode():
            cache = DynamicCache()
            self.model(
                torch.zeros(1, 3, dtype=torch.long, device=self.model.device), past_key_values=cache, use_cache=True
            )
        tensors = _tensors(cache)
        if not tensors or any(tensor is None or tensor.dim() != 4 or tensor.shape[-2] != 3 for tensor in tensors):
            name = self.model.config.model_type
            raise ConfigError(f"a {name} model doesn't keep keys and values in every layer; transformers: can't run it")
        return sum(tensor.numel() // 3 * tensor.element_size() for tensor in tensors)

    def _known(self, row: Row) -> KeyValues:
        """A row's keys and values, from its prefill or from the batch (where rows are padded on the left)."""
        if row in self._fresh:
            return self._fresh[row]
        assert self._cache is not None
        at = self._batch.index(row)
        width = self._cache.get_seq_length()
        start = width - self._computed(row, width)
        return tuple(tensor[at, :, start:] for tensor in _tensors(self._cache))

    def _computed(self, row: Row, width: int) -> int:
        """How many of a batch row's tokens are in the cache: all but the one just sampled."""
        return min(row.length - 1, width)

    def _rebuild(self) -> None:
        known = [self._known(row) for row in self.rows]
        width = max(kv[0].shape[-2] for kv in known)
        padded = [[F.pad(t, (0, 0, width - t.shape[-2], 0)) for t in kv] for kv in known]
        self._cache = _filled([torch.stack(rows) for rows in zip(*padded, strict=True)])
        self._fresh.clear()
        self._batch = list(self.rows)

    def _tensor(self, ids: TokenIds) -> Tensor:
        return torch.from_numpy(np.asarray(ids, np.int64)).to(self.model.device)


def _filled(tensors: Sequence[Tensor]) -> DynamicCache:
    """A cache from keys and values in turn, [rows, kv_heads, n, d] each; an empty one from none."""
    cache = DynamicCache()
    for layer in range(len(tensors) // 2):
        cache.update(tensors[2 * layer], tensors[2 * layer + 1], layer)
    return cache


def _tensors(cache: DynamicCache) -> list[Any]:
    return [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]

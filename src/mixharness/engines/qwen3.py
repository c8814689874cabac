"""A lean forward for Qwen3-architecture models in fp32, made for small models on a CPU.

A small model's decode step is spent on the number of operations and on reading keys and values, so:
- projections that share an input are one matrix; norms are three operations; rotation is one complex product
  (the two halves of each head are interleaved in the weights for it, which leaves all dot products unchanged);
- keys and values live in one preallocated slab; rows with a long common prefix are neighbours in it and form a
  group, whose shared part is read once for all of them.

Equal to transformers' Qwen3ForCausalLM to 1e-5 in log-probs; the tests compare them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mixharness.engines.base import LogProbs, TokenIds
from mixharness.engines.forward import Row, check_state, token_logprobs
from mixharness.engines.prefix_cache import KeyValues, common_prefix

_CHUNK = 512
"""Tokens computed at once in a prefill: bounds the size of its mask and skips what causality hides."""
_SHARE = 64
"""Rows that share fewer tokens are cheaper apart."""
_PADDING = 400
"""Tokens of padding that cost about as much as attending once more."""

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [n, heads, d], k [n, kv_heads, d], v [n, kv_heads, d]) to [n, heads * d]."""


def is_supported(config: Any, dtype: torch.dtype) -> bool:
    """Whether a transformers config is one that this forward computes exactly."""
    return (
        config.model_type == "qwen3"
        and dtype == torch.float32
        and config.rope_parameters["rope_type"] == "default"
        and config.hidden_act == "silu"
        and not config.attention_bias
        and not config.use_sliding_window
    )


@dataclass
class _Layer:
    """One block's weights, transposed for x @ w; norm scales are folded into what follows them."""

    qkv: Tensor  # [hidden, (heads + 2 kv_heads) d]
    qk_scale: Tensor  # [heads + kv_heads, d], the softmax scale included
    out: Tensor  # [heads d, hidden]
    gate_up: Tensor  # [hidden, 2 intermediate]
    down: Tensor  # [intermediate, hidden]


@dataclass
class _Group:
    """Neighbouring rows; the first `shared` tokens are the same in all of them."""

    size: int
    shared: int


class Qwen3Forward:
    """See the module and `forward.Forward`.

    Args:
        config: a transformers Qwen3Config.
        state: the model's state dict.
        max_rows: most rows at once.
        device: where to compute.
    """

    def __init__(self, config: Any, state: Mapping[str, Tensor], max_rows: int, device: torch.device) -> None:
        self.config, self.device = config, device
        self.heads, self.kv_heads, self.dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.rows: list[Row] = []
        self._groups: list[_Group] = []
        self._shapes = {name: torch.empty(tensor.shape, device="meta") for name, tensor in state.items()}
        if config.tie_word_embeddings:
            self._shapes.pop("lm_head.weight", None)
        frequencies = torch.arange(0, self.dim, 2, dtype=torch.float32) / self.dim
        self._inv_freq = (1.0 / config.rope_parameters["rope_theta"] ** frequencies).to(self.device)
        self._rope = torch.empty(0, 1, self.dim // 2, dtype=torch.complex64, device=self.device)
        self._slab = torch.empty(config.num_hidden_layers, 2, max_rows, self.kv_heads, 0, self.dim, device=self.device)
        self._views: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        """Of each layer: keys and values [rows, kv_heads, t, d], and both again as [rows kv_heads t, d]."""
        self.load(state)

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of all layers."""
        return len(self._layers) * 2 * int(self.kv_heads * self.dim) * 4

    # ---- weights

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Fuses and folds a state dict's weights (see _Layer)."""
        check_state(state, self._shapes)
        w = {name: state[name].detach().to(self.device, torch.float32) for name in self._shapes}
        self._embed = w["model.embed_tokens.weight"].clone()
        head = w.get("lm_head.weight", self._embed)
        self._head = (head * self._fold(w["model.norm.weight"])).T.contiguous()
        self._layers = [self._fuse(w, f"model.layers.{i}.") for i in range(self.config.num_hidden_layers)]
        self._eps = torch.tensor(math.sqrt(self.config.rms_norm_eps * self.config.hidden_size), device=self.device)
        self._head_eps = torch.tensor(math.sqrt(self.config.rms_norm_eps * self.dim), device=self.device)

    def _fuse(self, w: Mapping[str, Tensor], at: str) -> _Layer:
        before, after = (
            self._fold(w[at + "input_layernorm.weight"]),
            self._fold(w[at + "post_attention_layernorm.weight"]),
        )
        q, k, v = (w[f"{at}self_attn.{name}_proj.weight"] for name in "qkv")
        q_scale, k_scale = (self._fold(w[f"{at}self_attn.{name}_norm.weight"]) for name in "qk")
        scales = [q_scale.expand(self.heads, -1) * self.dim**-0.5, k_scale.expand(self.kv_heads, -1)]
        gate, up = w[at + "mlp.gate_proj.weight"], w[at + "mlp.up_proj.weight"]
        return _Layer(
            qkv=(torch.cat([self._interleave(q), self._interleave(k), v]) * before).T.contiguous(),
            qk_scale=self._interleave(torch.cat(scales).reshape(-1, 1)).view(-1, self.dim),
            out=w[at + "self_attn.o_proj.weight"].T.contiguous(),
            gate_up=(torch.cat([gate, up]) * after).T.contiguous(),
            down=w[at + "mlp.down_proj.weight"].T.contiguous(),
        )

    def _interleave(self, weight: Tensor) -> Tensor:
        """Rows of each head from (halves, pairs) to (pairs, halves): what rotates together lies together."""
        heads = weight.view(-1, 2, self.dim // 2, weight.shape[-1])
        return heads.transpose(1, 2).reshape(weight.shape)

    @staticmethod
    def _fold(scale: Tensor) -> Tensor:
        """A norm's scale with the sqrt(n) that `_unit` leaves out."""
        return scale * math.sqrt(len(scale))

    # ---- the model

    def _hidden(self, ids: Tensor, rope: Tensor, attend: Attend) -> Tensor:
        """Final hidden states [n, hidden], the last norm's scale apart, of ids [n] at rotations [n, 1, d/2]."""
        n, split = len(ids), self.heads + self.kv_heads
        x = self._embed[ids]
        for i, layer in enumerate(self._layers):
            qkv = (_unit(x, self._eps) @ layer.qkv).view(n, -1, self.dim)
            qk = _rotate(_unit(qkv[:, :split], self._head_eps) * layer.qk_scale, rope)
            x = torch.addmm(x, attend(i, qk[:, : self.heads], qk[:, self.heads :], qkv[:, split:]), layer.out)
            gate, up = (_unit(x, self._eps) @ layer.gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate) * up, layer.down)
        return _unit(x, self._eps)

    def _rotations(self, stop: int) -> Tensor:
        """exp(i position frequency) for positions up to stop: complex64 [>= stop, 1, d/2]."""
        if len(self._rope) < stop:
            angles = torch.arange(2 * stop, device=self.device, dtype=torch.float32)[:, None] * self._inv_freq
            self._rope = torch.polar(torch.ones_like(angles), angles)[:, None]
        return self._rope

    def _prefill(self, slot: int, ids: Tensor, start: int) -> Tensor:
        """Computes ids [n] at positions from `start` into a slot of the slab; hidden states [n, hidden]."""
        stop = start + len(ids)
        later = torch.full((len(ids), len(ids)), -torch.inf, device=self.device).triu_(1)
        mask = F.pad(later, (start, 0))

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = (tensor[slot, :, :stop] for tensor in self._views[layer][:2])
            keys[:, start:], values[:, start:] = k.transpose(0, 1), v.transpose(0, 1)
            out = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask, scale=1.0, enable_gqa=True
            )
            return out[0].transpose(0, 1).reshape(len(ids), -1)

        return self._hidden(ids, self._rotations(stop)[start:stop], attend)

    def _attend_group(self, keys: Tensor, values: Tensor, q: Tensor, shared: int, mask: Tensor | None) -> Tensor:
        """One new token a row: keys and values [rows, kv_heads, t, d], q [rows, kv_heads, per_kv, d]."""
        scores = q @ keys[:, :, shared:].mT
        if mask is not None:
            scores += mask
        if not shared:
            return scores.softmax(-1) @ values
        rows, kv_heads, per_kv, dim = q.shape
        together = q.transpose(0, 1).reshape(kv_heads, rows * per_kv, dim) @ keys[0, :, :shared].mT
        together = together.view(kv_heads, rows, per_kv, shared).transpose(0, 1)
        weights = torch.cat([together, scores], -1).softmax(-1)
        common = weights[..., :shared].transpose(0, 1).reshape(kv_heads, rows * per_kv, shared) @ values[0, :, :shared]
        apart = weights[..., shared:] @ values[:, :, shared:]
        return apart + common.view(kv_heads, rows, per_kv, dim).transpose(0, 1)

    # ---- the batch

    @torch.inference_mode()
    def add(self, row: Row, past: Sequence[KeyValues]) -> Tensor:
        """Prefills what `past` lacks, a chunk at a time; logits of the last id, [vocab]."""
        self._reserve(row.length)
        slot = self._open(row)
        start = 0
        for (kv,) in past:
            self._slab[:, :, slot, :, start : start + kv.shape[-2]] = kv
            start += kv.shape[-2]
        ids = torch.from_numpy(row.ids[start : row.length].astype(np.int64)).to(self.device)
        for at in range(0, len(ids), _CHUNK):
            last = self._prefill(slot, ids[at : at + _CHUNK], start + at)[-1]
        return last @ self._head

    @torch.inference_mode()
    def step(self) -> Tensor:
        """One token for every row."""
        lengths = [row.length for row in self.rows]
        self._reserve(max(lengths))
        positions = torch.tensor(lengths, device=self.device) - 1
        ids = torch.tensor([int(row.ids[row.length - 1]) for row in self.rows], device=self.device)
        capacity = self._slab.shape[-2]
        places = torch.arange(len(ids) * self.kv_heads, device=self.device).view(len(ids), -1) * capacity
        places = (places + positions[:, None]).flatten()
        plan = self._plan(lengths)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values, flat_keys, flat_values = self._views[layer]
            flat_keys.index_copy_(0, places, k.reshape(-1, self.dim))
            flat_values.index_copy_(0, places, v.reshape(-1, self.dim))
            q = q.reshape(len(ids), self.kv_heads, -1, self.dim)
            outs = [
                self._attend_group(keys[at, :, :stop], values[at, :, :stop], q[at], shared, mask)
                for at, stop, shared, mask in plan
            ]
            return (outs[0] if len(outs) == 1 else torch.cat(outs)).reshape(len(ids), -1)

        return self._hidden(ids, self._rotations(max(lengths))[positions], attend) @ self._head

    def _plan(self, lengths: list[int]) -> list[tuple[slice, int, int, Tensor | None]]:
        """What attends together: its rows, its longest row, its shared tokens, and a mask where lengths differ.

        That is a group, or neighbouring rows that share nothing, unless padding them to one length costs too much.
        """
        spans: list[tuple[list[int], int]] = []
        first = 0
        for group in self._groups:
            mine, shared = lengths[first : first + group.size], group.shared if group.size > 1 else 0
            first += group.size
            if spans and not shared and not spans[-1][1]:
                joined = spans[-1][0] + mine
                if len(joined) * max(joined) - sum(joined) < _PADDING * (len(joined) - 1):
                    spans[-1] = joined, 0
                    continue
            spans.append((mine, shared))
        stops = accumulate(len(mine) for mine, _ in spans)
        return [
            (slice(stop - len(mine), stop), max(mine), shared, self._mask(mine, shared))
            for stop, (mine, shared) in zip(stops, spans, strict=True)
        ]

    def _mask(self, lengths: list[int], start: int) -> Tensor | None:
        """-inf beyond each row's length, from `start` to the longest: [rows, 1, 1, t]; None for equal lengths."""
        if min(lengths) == max(lengths):
            return None
        places = torch.arange(start, max(lengths), device=self.device)
        beyond = places >= torch.tensor(lengths, device=self.device)[:, None]
        return torch.zeros(beyond.shape, device=self.device).masked_fill_(beyond, -torch.inf)[:, None, None]

    def key_values(self, row: Row, start: int, stop: int) -> KeyValues:
        """[layers, 2, kv_heads, stop - start, d]."""
        return (self._slab[:, :, self.rows.index(row), :, start:stop].clone(),)

    @torch.inference_mode()
    def remove(self, row: Row) -> None:
        """Closes the gap with its group's last row, and the gap that leaves with the next group's last."""
        gap = self.rows.index(row)
        stops = list(accumulate(group.size for group in self._groups))
        mine = bisect_right(stops, gap)
        for stop in stops[mine:]:
            self._move(stop - 1, gap)
            gap = stop - 1
        self.rows.pop()
        self._groups[mine].size -= 1
        if not self._groups[mine].size:
            del self._groups[mine]

    def clear(self) -> None:
        """Forgets the rows."""
        self.rows.clear()
        self._groups.clear()

    def _open(self, row: Row) -> int:
        """The slot after the last row of the group it joins; each later group's first row makes way to its end."""
        mine, gap, stop = self._join(row), len(self.rows), len(self.rows)
        self.rows.append(row)
        for group in self._groups[:mine:-1]:
            stop -= group.size
            self._move(stop, gap)
            gap = stop
        self.rows[gap] = row
        self._groups[mine].size += 1
        return gap

    def _join(self, row: Row) -> int:
        """The index of the group that shares most with a row, or of a new one."""
        best, most, first = len(self._groups), _SHARE - 1, 0
        for i, group in enumerate(self._groups):
            leader = self.rows[first]
            common = common_prefix(leader.ids[: leader.length - 1], row.ids[: row.length])
            if common > most and (group.size == 1 or 2 * common >= group.shared):
                best, most = i, common
            first += group.size
        if best == len(self._groups):
            self._groups.append(_Group(0, 0))
        else:
            group = self._groups[best]
            group.shared = most if group.size == 1 else min(group.shared, most)
        return best

    def _move(self, source: int, target: int) -> None:
        if source == target:
            return
        row = self.rows[source]
        self._slab[:, :, target, :, : row.length] = self._slab[:, :, source, :, : row.length]
        self.rows[target] = row

    def _reserve(self, length: int) -> None:
        """Room for `length` tokens a row; grows by doubling."""
        capacity = self._slab.shape[-2]
        if length <= capacity:
            return
        shape = list(self._slab.shape)
        shape[-2] = max(2 * capacity, -(-length // 256) * 256)
        grown = torch.zeros(shape, device=self.device)  # not empty: a masked NaN would still be one
        for slot, row in enumerate(self.rows):
            n = min(row.length, capacity)
            grown[:, :, slot, :, :n] = self._slab[:, :, slot, :, :n]
        self._slab = grown
        self._views = [(k, v, k.view(-1, self.dim), v.view(-1, self.dim)) for k, v in grown]

    @torch.inference_mode()
    def score(self, ids: TokenIds) -> LogProbs:
        """One causal forward, without the slab."""

        def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0, enable_gqa=True)
            return out[0].transpose(0, 1).reshape(len(ids) - 1, -1)

        known = torch.from_numpy(ids[:-1].astype(np.int64)).to(self.device)
        hidden = self._hidden(known, self._rotations(len(ids))[: len(ids) - 1], attend)
        parts = range(0, len(hidden), _CHUNK)
        return np.concatenate(
            [token_logprobs(hidden[a : a + _CHUNK] @ self._head, ids[1 + a : 1 + a + _CHUNK]) for a in parts]
        )


def _unit(x: Tensor, eps: Tensor) -> Tensor:
    """x / sqrt(sum of squares + eps²): RMSNorm without its scale and its sqrt(n)."""
    return x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), eps)


def _rotate(x: Tensor, rope: Tensor) -> Tensor:
    """Rotary embedding of interleaved pairs: x [n, heads, d], rope complex [n, 1, d/2]."""
    pairs = torch.view_as_complex(x.view(*x.shape[:2], -1, 2))
    return torch.view_as_real(pairs * rope).view(x.shape)

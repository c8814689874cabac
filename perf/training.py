"""What a training pass costs: packed trees against the same tokens trajectory by trajectory, call by call, or masked.

    python perf/training.py [--models 1,5] [--repeats 3] [--threads 1] [--shapes chain,group] [--json]

Forward and backward of the log-probs of all sampled tokens, fp32, the head at sampled positions only in every
contender. `leaf`: one dense pass for each trajectory (a token shared by trajectories is computed in each). `call`: one
for each model call, as requests are recorded. `mask`: the packed sequence under a dense n x n mask. CPU seconds of
this process, which neighbours change little, unlike wall time; the least of the repeats counts. `ideal` is the ratio of
floating-point operations.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from mixharness.algos.attention import use_tree_attention
from mixharness.algos.logprobs import PackedPolicy, as_tensordict
from mixharness.algos.packing import pack
from mixharness.trees.trajectory import Trajectory

Rollouts = list[list[Trajectory]]
Row = dict[str, Any]
VOCAB = 3072
MODELS = {  # millions of parameters → hidden size, layers, heads
    "1": (128, 4, 4),
    "5": (256, 5, 4),
    "46": (640, 8, 10),
}


class Dice:
    """Random tokens; a trajectory from parts (source, number of tokens or the tokens themselves)."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def roll(self, n: int) -> list[int]:
        tokens: list[int] = self.rng.integers(0, VOCAB, n).tolist()
        return tokens

    def path(self, *parts: tuple[int, int | Sequence[int]]) -> Trajectory:
        drawn = [(call, self.roll(what) if isinstance(what, int) else list(what)) for call, what in parts]
        ids = np.array([token for _, tokens in drawn for token in tokens], np.int32)
        source = np.array([call for call, tokens in drawn for _ in tokens], np.int32)
        logprobs, versions = np.zeros(len(ids), np.float32), np.where(source >= 0, 0, -1).astype(np.int32)
        return Trajectory("main", (), ids, source, logprobs, versions)

    def chain(self, prompt: Sequence[int], calls: int, sampled: int, result: int, first: int = 0) -> Trajectory:
        """A conversation: every request carries on the one before."""
        parts: list[tuple[int, int | Sequence[int]]] = [(-1, prompt)]
        for call in range(calls):
            parts += [(-1, result)] if call else []
            parts.append((first + call, sampled))
        return self.path(*parts)


def chain() -> Rollouts:
    """One conversation of 16 calls."""
    dice = Dice()
    return [[dice.chain(dice.roll(128), 16, 24, 40)]]


def stripped() -> Rollouts:
    """16 calls of which each later request keeps the answer and drops the thinking."""
    dice, history, paths = Dice(), [], []
    history = dice.roll(128)
    for call in range(16):
        path = dice.path((-1, history), (call, 40))
        paths.append(path)
        history = [*history, *path.ids[-8:].tolist(), *dice.roll(40)]
    return [paths]


def group() -> Rollouts:
    """Eight rollouts of one task, three calls each."""
    dice = Dice()
    prompt = dice.roll(512)
    return [[dice.chain(prompt, 3, 32, 48)] for _ in range(8)]


def segments() -> Rollouts:
    """A main agent before and after compaction, and two subagents, below one system prompt."""
    dice = Dice()
    system = dice.roll(256)
    shapes = ((6, 32, 40), (4, 32, 40), (3, 32, 40), (3, 32, 40))
    return [[dice.chain([*system, *dice.roll(20)], *s, first=10 * i) for i, s in enumerate(shapes)]]


def mix() -> Rollouts:
    """Harnesses in their shortest form: a system prompt of 1,000 tokens, short rollouts in groups of 8."""
    dice = Dice()
    system = dice.roll(1000)
    prompts = [[*system, *dice.roll(60)] for _ in range(2)]
    return [[dice.path((-1, prompt), (0, 40), (-1, 30), (1, 5))] for prompt in prompts for _ in range(8)]


SHAPES: dict[str, Callable[[], Rollouts]] = {f.__name__: f for f in (chain, stripped, group, segments, mix)}


def per_call(rollouts: Rollouts) -> list[Trajectory]:
    """The requests that were made: each call's prompt and completion, trained where it was sampled."""
    out: dict[tuple[int, int], Trajectory] = {}
    for number, paths in enumerate(rollouts):
        for path in paths:
            for call in np.unique(path.source[path.source >= 0]):
                end = int(np.flatnonzero(path.source == call)[-1]) + 1
                source = np.where(path.source[:end] == call, path.source[:end], -1)
                rest = (path.logprobs[:end], path.versions[:end])
                out[number, int(call)] = Trajectory("main", (), path.ids[:end], source, *rest)
    return list(out.values())


def build(millions: str) -> PreTrainedModel:
    """A Qwen3 of about that size, grouped-query attention 2 to 1."""
    hidden, layers, heads = MODELS[millions]
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=64 if hidden > 128 else 32,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    model: PreTrainedModel = Qwen3ForCausalLM(config).eval()
    return model


def dense_pass(model: PreTrainedModel, path: Trajectory) -> Tensor:
    """Sum of log-probs of one trajectory's sampled tokens, by plain causal attention."""
    ids = torch.from_numpy(path.ids).long()
    where = torch.from_numpy(np.flatnonzero(path.trainable))
    logits = model(input_ids=ids[None], use_cache=False, logits_to_keep=where - 1).logits[0]
    total: Tensor = logits.log_softmax(-1).gather(1, ids[where, None]).sum()
    return total


def contenders(model: PreTrainedModel, rollouts: Rollouts) -> dict[str, Callable[[], None]]:
    """Name → one forward and backward pass over all sampled tokens."""
    policy, data = PackedPolicy(model), as_tensordict(pack(rollouts))
    leaves, calls = [path for paths in rollouts for path in paths], per_call(rollouts)

    def packed(dense: bool) -> None:
        use_tree_attention(model, dense)
        policy(data.copy())["log_prob"].sum().backward()

    def separate(paths: Sequence[Trajectory]) -> None:
        model.set_attn_implementation("sdpa")
        for path in paths:
            dense_pass(model, path).backward()

    return {
        "packed": lambda: packed(False),
        "leaf": lambda: separate(leaves),
        "call": lambda: separate(calls),
        "mask": lambda: packed(True),
    }


def operations(model: PreTrainedModel, rollouts: Rollouts) -> dict[str, float]:
    """Floating-point operations of a forward pass, as counted for `ideal`: weights, head, and attention pairs."""
    config = model.config
    body = sum(p.numel() for name, p in model.named_parameters() if "embed" not in name)
    width = config.num_attention_heads * config.head_dim * config.num_hidden_layers

    def cost(tokens: float, pairs: float, trained: float) -> float:
        return float(2 * body * tokens + 4 * width * pairs + 2 * config.hidden_size * VOCAB * trained)

    def dense(paths: Sequence[Trajectory]) -> float:
        return sum(cost(n, n * (n + 1) / 2, int(p.trainable.sum())) for p in paths for n in [len(p.ids)])

    tree = pack(rollouts)
    packed = cost(len(tree), float((tree.position + 1.0).sum()), tree.trainable.sum())
    return {
        "packed": packed,
        "leaf": dense([p for paths in rollouts for p in paths]),
        "call": dense(per_call(rollouts)),
    }


def measure(millions: str, shape: str, repeats: int) -> Row:
    """CPU seconds of each contender, its tokens, and how much faster packed is, beside the ideal."""
    model, rollouts = build(millions), SHAPES[shape]()
    best = dict.fromkeys(runs := contenders(model, rollouts), float("inf"))
    runs["packed"]()
    for _ in range(repeats):
        for name, run in runs.items():
            started = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - started)
    ops = operations(model, rollouts)
    tokens = {
        "packed": len(pack(rollouts)),
        "leaf": sum(len(path.ids) for paths in rollouts for path in paths),
        "call": sum(len(path.ids) for path in per_call(rollouts)),
    }
    return {
        "seconds": {name: round(spent, 4) for name, spent in best.items()},
        "tokens": tokens,
        "speedup": {name: round(best[name] / best["packed"], 2) for name in ("leaf", "call", "mask")},
        "ideal": {name: round(ops[name] / ops["packed"], 2) for name in ("leaf", "call")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="1,5", help=f"millions of parameters, of {','.join(MODELS)}")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    names = [(m, s) for m in options.models.split(",") for s in options.shapes.split(",")]
    rows = {f"{m}M {s}": measure(m, s, options.repeats) for m, s in names}
    document = {
        "name": "training",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "results": {key: {"seconds": row["seconds"]["packed"], "tokens": row["tokens"]} for key, row in rows.items()},
        "peers": {name: {key: row["seconds"][name] for key, row in rows.items()} for name in ("leaf", "call", "mask")},
        "ratios": {key: {"speedup": row["speedup"], "ideal": row["ideal"]} for key, row in rows.items()},
    }
    if options.json:
        print(json.dumps(document))
        return
    print(f"{document['machine']}; {options.threads} threads; CPU seconds, and speed-up of packed (ideal)")
    for key, row in rows.items():
        cells = [
            f"{name} {row['seconds'][name]:.3f} s ×{row['speedup'][name]} ({row['ideal'].get(name, '–')})"
            for name in ("leaf", "call", "mask")
        ]
        print(f"{key:14} {row['tokens']!s:50} packed {row['seconds']['packed']:.3f} s   " + "   ".join(cells))


if __name__ == "__main__":
    main()

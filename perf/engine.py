"""What the in-process engine costs: concurrent calls that share most of their prompts, against model.generate.

    python perf/engine.py [--calls 1,8,16] [--repeats 3] [--tiny] [--json]

A 2.7M-parameter Qwen3 in fp32 on one thread (--tiny: the shipped policy); prompts of 2,500 tokens that share 2,000,
48 new tokens each. Every repeat runs each contender once, with fresh tails; the cheapest repeat counts, as a
busy machine only ever adds. Seconds are of the wall (--cpu: of this process's CPU, for a machine that others use).
`cold` is the first call of all; `warm` is a call that adds 50 tokens to a finished one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from mixharness.engines.base import Completion, GenerateRequest, Sampling, TokenIds
from mixharness.engines.codec import ChatCodec
from mixharness.engines.tiny import TINY_DIR
from mixharness.engines.transformers import TransformersEngine

SHARED, TAIL, NEW = 2000, 500, 48
Row = dict[str, Any]


def build(tiny: bool) -> Any:
    """The model to measure, without stop tokens: every call samples all its tokens."""
    if tiny:
        model: Any = AutoModelForCausalLM.from_pretrained(str(TINY_DIR), dtype=torch.float32)
    else:
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=3072,
            hidden_size=192,
            intermediate_size=640,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=6,
            head_dim=32,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        )
        model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = None
    return model.eval()


class Bench:
    """The contenders, on one model."""

    def __init__(self, model: Any) -> None:
        self.model, self.rng = model, np.random.default_rng(0)
        self.stem = self._random(SHARED)
        codec = ChatCodec.load(TINY_DIR)
        self.lean = self._engine(codec, lean=True)
        self.hf = self._engine(codec, lean=False)

    def _engine(self, codec: ChatCodec, lean: bool) -> TransformersEngine:
        engine = TransformersEngine(self.model, codec=codec, lean=lean, max_batch=32)
        engine._stop_ids = frozenset()
        return engine

    def _random(self, n: int) -> TokenIds:
        return self.rng.integers(3, self.model.config.vocab_size, n).astype(np.int32)

    def prompts(self, calls: int) -> list[TokenIds]:
        return [np.concatenate([self.stem, self._random(TAIL)]) for _ in range(calls)]

    async def ask(self, engine: TransformersEngine, prompts: list[TokenIds]) -> list[Completion]:
        calls = (engine.generate(GenerateRequest(p, Sampling(max_tokens=NEW))) for p in prompts)
        return list(await asyncio.gather(*calls))

    async def generate(self, prompts: list[TokenIds]) -> None:
        """transformers' own loop on a batch, sampling the same number of tokens."""
        ids = torch.from_numpy(np.stack(prompts).astype(np.int64))
        with torch.inference_mode():
            self.model.generate(ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=True, top_k=0, pad_token_id=0)


async def measure(model: Any, calls: list[int], repeats: int, clock: Callable[[], float]) -> Row:
    """Seconds by number of calls at once, and what single operations cost."""

    async def fastest(contenders: dict[str, Callable[[], Awaitable[object]]], repeats: int) -> Row:
        best = dict.fromkeys(contenders, float("inf"))
        for _ in range(repeats):
            for name, run in contenders.items():
                started = clock()
                await run()
                best[name] = min(best[name], clock() - started)
        return {name: round(seconds, 4) for name, seconds in best.items()}

    bench = Bench(model)
    cold = await fastest({"cold": lambda: bench.ask(bench.lean, bench.prompts(1))}, 1)
    await bench.ask(bench.hf, bench.prompts(1))
    table = {
        str(n): await fastest(
            {
                "engine": lambda n=n: bench.ask(bench.lean, bench.prompts(n)),  # type: ignore[misc]
                "engine over transformers": lambda n=n: bench.ask(bench.hf, bench.prompts(n)),  # type: ignore[misc]
                "model.generate": lambda n=n: bench.generate(bench.prompts(n)),  # type: ignore[misc]
            },
            repeats,
        )
        for n in calls
    }
    session = Session(bench)
    await session.next_call()
    warm = await fastest({"warm": session.next_call}, repeats)
    state = model.state_dict()
    update = await fastest({"weight_update": lambda: bench.lean.update_weights(state)}, repeats)
    error = await session.logprob_error()
    await bench.lean.aclose()
    await bench.hf.aclose()
    return {"seconds": table, **cold, **warm, **update, "logprob_error": error}


class Session:
    """A conversation that grows by 50 tokens a call."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.history = bench, bench.prompts(1)[0]
        self.sampled: list[tuple[int, Completion]] = []

    async def next_call(self) -> None:
        (completion,) = await self.bench.ask(self.bench.lean, [self.history])
        self.sampled.append((len(self.history), completion))
        self.history = np.concatenate([self.history, completion.ids, self.bench._random(50)])

    async def logprob_error(self) -> float:
        """The largest difference between what was reported and one forward of transformers over the whole session."""
        exact = await self.bench.hf.score(self.history)
        errors = (np.abs(exact[at - 1 : at - 1 + NEW] - done.logprobs).max() for at, done in self.sampled)
        return float(max(errors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", default="1,8,16", help="how many calls at once")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="the shipped policy")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds instead of wall seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = build(options.tiny)
    clock = time.process_time if options.cpu else time.perf_counter
    measured = asyncio.run(measure(model, [int(n) for n in options.calls.split(",")], options.repeats, clock))
    table = measured["seconds"]
    document = {
        "name": "engine",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "results": {
            "clock": "cpu" if options.cpu else "wall",
            "parameters": model.num_parameters(),
            **measured,
            "seconds": {n: r["engine"] for n, r in table.items()},
        },
        "peers": {name: {n: r[name] for n, r in table.items()} for name in list(next(iter(table.values())))[1:]},
        "ratios": {f"{n} calls, model.generate": round(r["model.generate"] / r["engine"], 2) for n, r in table.items()},
    }
    if options.json:
        print(json.dumps(document))
        return
    print(f"{document['machine']}; {model.num_parameters():,} parameters")
    print(f"{('cpu' if options.cpu else 'wall') + ' seconds, calls at once':26}" + "".join(f"{n:>9}" for n in table))
    for name in next(iter(table.values())):
        print(f"{name:26}" + "".join(f"{row[name]:9.3f}" for row in table.values()))
    for key in ("cold", "warm", "weight_update", "logprob_error"):
        print(f"{key:26}{measured[key]:9.2g}")


if __name__ == "__main__":
    main()

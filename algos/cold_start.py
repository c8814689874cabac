"""Cold start: makes the tiny policy that mixharness ships, from nothing but the real harnesses' own conversations.

    python -m mixharness.algos.cold_start                    writes the package's policy
    python -m mixharness.algos.cold_start --out DIR --seed 1

1. Demonstrations of mixed quality on Starter's templated train tasks, through the real harnesses in their sandboxes.
2. A byte-complete tokenizer, trained on those conversations.
3. SFT on varied conversations: without system prompt and tools (copying names is learnt there, and cheaply), then
   whole, both with mostly made-up names, so that copying is what pays; then with names from an English lexicon.
4. A gate: at T=1, 90% of the commands for fresh train instances must be a way that the demonstrations know.

The policy knows careful and careless ways equally well; which of them pays is left to reinforcement learning.
Held-out tasks, their wordings and their names are never seen here.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics as pydoc_topics
from typing import Any

import numpy as np
import torch
from rich.progress import Progress
from transformers import Qwen3ForCausalLM

from mixharness.algos.conversations import (
    Conversation,
    load_conversations,
    made_up_words,
    save_conversations,
    to_trajectory,
    vary,
)
from mixharness.algos.demonstrate import demonstrate
from mixharness.algos.logprobs import PackedPolicy
from mixharness.algos.sft import SFT, sft_batches
from mixharness.benchmarks import get_benchmark
from mixharness.benchmarks.evaluate import select_tasks
from mixharness.benchmarks.starter import templated, words
from mixharness.benchmarks.starter.templated import RECORDS, Demonstrations
from mixharness.engines.base import GenerateRequest, Sampling
from mixharness.engines.codec import ChatCodec
from mixharness.engines.scripted import ScriptedEngine
from mixharness.engines.tiny import TINY_DIR
from mixharness.engines.tiny.build import build_model, save_policy, train_tokenizer
from mixharness.engines.transformers import TransformersEngine
from mixharness.envs.collect import Collector
from mixharness.errors import MixharnessError
from mixharness.runtime import shared_runtime
from mixharness.sandboxes import get_provider

HARNESSES = ("agent-loop", "pi:bare", "claude-code:bare")
GATE = 0.9


class GateError(MixharnessError):
    """The policy doesn't copy well enough for reinforcement learning to start from it."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the result.

    Attributes:
        demonstrations: seeds per (task, harness).
        short_steps, whole_steps, english_steps: optimiser steps of each stage.
        batch: conversations a step, all of one harness, so that their prompt is computed once.
        learning_rate: peak of the short stage, later ones have theirs; AdamW (0.9, 0.95); short warm-up, linear decay
            over the second half of each stage.
    """

    seed: int = 0
    demonstrations: int = 3
    vocab_size: int = 2048
    short_steps: int = 800
    whole_steps: int = 200
    batch: int = 48
    learning_rate: float = 4e-3
    whole_learning_rate: float = 1e-3
    english_steps: int = 300
    english_learning_rate: float = 1.5e-3
    made_up: int = 4000


def collect_demonstrations(recipe: Recipe, sandbox: str, advance: Callable[[], None]) -> list[Conversation]:
    """Runs every (templated train task, harness, seed) for real."""
    runtime, benchmark, provider = shared_runtime(), get_benchmark("Starter"), get_provider(sandbox)

    def collector(engine: ScriptedEngine) -> Collector:
        return Collector(engine, runtime.proxy, provider, concurrency=3)

    return runtime.run(
        demonstrate(
            benchmark,
            train_tasks(),
            HARNESSES,
            codec=ChatCodec.load(TINY_DIR),
            make_collector=collector,
            seeds=range(recipe.demonstrations),
            on_done=lambda rollout: advance(),
        )
    )


def train_tasks() -> list[str]:
    """Starter's templated train tasks."""
    return select_tasks(get_benchmark("Starter"), split="train", tags=["templated"])


def corpus(conversations: Sequence[Conversation], tasks: Sequence[str], recipe: Recipe) -> Iterator[str]:
    """What the tokenizer is trained on: each harness's frame, often, and many varied prompts and commands."""
    rng, pool = random.Random(recipe.seed), name_pool(recipe)
    for frame in one_frame_each(conversations):
        texts = [json.dumps(frame.tools), *(str(message["content"]) for message in frame.messages)]
        for _ in range(300):
            yield from texts
        for _ in range(3000):
            varied = vary(frame, tasks, rng, pool)
            yield varied.prompt
            yield varied.command


def one_frame_each(conversations: Sequence[Conversation]) -> list[Conversation]:
    """The first conversation of each harness."""
    return list({c.harness: c for c in reversed(conversations)}.values())


def name_pool(recipe: Recipe) -> list[str]:
    """Made-up names, and the train pool's words four times over."""
    return made_up_words(random.Random(recipe.seed), recipe.made_up) + list(words.TRAIN) * 4


def english_pool(recipe: Recipe) -> list[str]:
    """Words of Python's own manual, three times over, beside made-up names and the train pool; none is held out."""
    text = " ".join(pydoc_topics.values())
    found = set(re.findall(r"(?<![A-Za-z_.`])[a-z]{3,7}(?![A-Za-z_(`])", text)) - set(words.HELD_OUT)
    return sorted(found) * 3 + made_up_words(random.Random(recipe.seed), recipe.made_up // 3) + list(words.TRAIN) * 4


def shorten(conversation: Conversation) -> Conversation:
    """Without system prompt and tools."""
    messages = [message for message in conversation.messages if message["role"] != "system"]
    return dataclasses.replace(conversation, tools=(), messages=messages)


class Trainer:
    """SFT of one model on varied conversations."""

    def __init__(
        self, model: Qwen3ForCausalLM, codec: ChatCodec, conversations: Sequence[Conversation], recipe: Recipe
    ) -> None:
        self.codec, self.recipe = codec, recipe
        self.rng, self.tasks = random.Random(recipe.seed), train_tasks()
        self.pool, self.whole = name_pool(recipe), False
        self.frames: dict[str, list[Conversation]] = {}
        for conversation in conversations:
            self.frames.setdefault(conversation.harness, []).append(conversation)
        self.model = model.train()
        self.loss = SFT(PackedPolicy(model))

    def stage(self, steps: int, peak: float, advance: Callable[[float], None]) -> None:
        """Runs the steps of one stage; `advance` gets each loss."""
        optimiser = torch.optim.AdamW(self.model.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _warm_up_and_decay(step, steps))
        for _ in range(steps):
            optimiser.zero_grad()
            advance(self._backward())
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimiser.step()
            schedule.step()

    def _backward(self) -> float:
        total = 0.0
        for batch in sft_batches([to_trajectory(self.codec, c) for c in self._batch()]):
            loss = self.loss(batch)["loss_sft"]
            loss.backward()
            total += loss.item()
        return total

    def _batch(self) -> list[Conversation]:
        frames = self.frames[self.rng.choice(sorted(self.frames))]
        chosen = [self.rng.choice(frames)] * self.recipe.batch
        return [vary(f if self.whole else shorten(f), self.tasks, self.rng, self.pool) for f in chosen]


def _warm_up_and_decay(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / 50)
    return warm * min(1.0, max(0.02, 2.0 * (1.0 - step / steps)))


def known_share(engine: TransformersEngine, frames: Sequence[Conversation], tasks: Sequence[str], seeds: int) -> float:
    """Share of fresh instances whose command, sampled at T=1, is one that the demonstrations know."""
    samples = [(frame, task, seed) for frame in frames for task in tasks for seed in range(10_000, 10_000 + seeds)]
    hits = asyncio.run(_sample_all(engine, samples))
    return sum(hits) / len(hits)


async def _sample_all(engine: TransformersEngine, samples: Sequence[tuple[Conversation, str, int]]) -> list[bool]:
    gate = asyncio.Semaphore(16)

    async def one(number: int, frame: Conversation, task: str, seed: int) -> bool:
        made = Demonstrations(templated.make_instance(task, seed))
        opening = [m | {"content": made.instance.prompt} if m["role"] == "user" else m for m in _opening(frame)]
        ids = engine.codec.render(opening, frame.tools)
        async with gate:
            done = await engine.generate(GenerateRequest(ids, Sampling(max_tokens=96, seed=number), "gate", number))
        answer: Any = engine.codec.parse(done.ids, ids)
        calls = answer.get("tool_calls") or [{"function": {"arguments": {}}}]
        return calls[0]["function"]["arguments"].get("command") in known_commands(made)

    return list(await asyncio.gather(*(one(i, *sample) for i, sample in enumerate(samples))))


def _opening(frame: Conversation) -> list[dict[str, Any]]:
    first = next(i for i, message in enumerate(frame.messages) if message["role"] == "assistant")
    return [dict(message) for message in frame.messages[:first]]


def known_commands(made: Demonstrations) -> set[str]:
    """Every careful or careless way."""
    return {made.command(place, record) for place in (True, False) for record in RECORDS}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="cold_start", description="Make the tiny policy.")
    parser.add_argument("--out", type=Path, default=TINY_DIR, help="where the policy goes (default: the package)")
    parser.add_argument("--run", type=Path, default=Path("runs/cold-start"), help="keeps demonstrations and metrics")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    make_policy(Recipe(seed=given.seed), given.out, given.run, given.sandbox)


def make_policy(recipe: Recipe, out: Path, run: Path, sandbox: str) -> None:
    """The four steps of the module's head; what an earlier try left in `run` is used again.

    Raises:
        GateError: the result falls short of the gate; it is left in `run`/policy.
    """
    run.mkdir(parents=True, exist_ok=True)
    with Progress() as progress:
        conversations = _demonstrations(recipe, run, sandbox, progress)
        frames = one_frame_each(conversations)
        tokenizer = train_tokenizer(corpus(conversations, train_tasks(), recipe), recipe.vocab_size)
        codec, model = ChatCodec(tokenizer), build_model(len(tokenizer), recipe.seed)
        _train(Trainer(model, codec, conversations, recipe), run, progress)
    save_policy(run / "policy", tokenizer, model.eval())
    engine = TransformersEngine(run / "policy")
    shares = {frame.harness: known_share(engine, [frame], train_tasks(), seeds=8) for frame in frames}
    report = {"recipe": dataclasses.asdict(recipe), "known_commands": shares}
    (run / "report.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(shares))
    if min(shares.values()) < GATE:
        raise GateError(f"known commands {shares}, each must reach {GATE}; train longer, or with another seed")
    save_policy(out, tokenizer, model)


def _demonstrations(recipe: Recipe, run: Path, sandbox: str, progress: Progress) -> list[Conversation]:
    path = run / "demonstrations.jsonl"
    if not path.exists():
        bar = progress.add_task("demonstrations", total=recipe.demonstrations * len(train_tasks()) * len(HARNESSES))
        save_conversations(path, collect_demonstrations(recipe, sandbox, lambda: progress.advance(bar)))
    return load_conversations(path)


def _train(trainer: Trainer, run: Path, progress: Progress) -> None:
    """Every stage. A stage that `run` holds already is loaded; `run`/losses.jsonl gets every tenth step's mean."""
    recipe = trainer.recipe
    made_up, english = name_pool(recipe), english_pool(recipe)
    stages = (
        ("short", recipe.short_steps, recipe.learning_rate, made_up),
        ("whole", recipe.whole_steps, recipe.whole_learning_rate, made_up),
        ("english", recipe.english_steps, recipe.english_learning_rate, english),
    )
    for name, steps, peak, pool in stages:
        kept = run / f"{name}.pt"
        if kept.exists():
            trainer.model.load_state_dict(torch.load(kept, weights_only=True))
            continue
        bar = progress.add_task(name, total=steps)
        seen: list[float] = []

        def advance(loss: float, bar: Any = bar, seen: list[float] = seen, name: str = name) -> None:
            seen.append(loss)
            mean = float(np.mean(seen[-10:]))
            progress.update(bar, advance=1, description=f"{name} loss {mean:.3f}")
            if len(seen) % 10 == 0:
                with (run / "losses.jsonl").open("a") as file:
                    file.write(json.dumps({"stage": name, "step": len(seen), "loss": mean}) + "\n")

        trainer.pool, trainer.whole = pool, name != "short"
        trainer.rng = random.Random(f"{recipe.seed}:{name}")  # resumed or not, a stage goes the same way
        trainer.stage(steps, peak, advance)
        torch.save(trainer.model.state_dict(), kept)


if __name__ == "__main__":
    main()

"""Demonstrations through the real harnesses: the conversations that the cold start begins from."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mixharness.algos.conversations import CLOSING, Conversation, choose_command, shell_tool
from mixharness.benchmarks.evaluate import make_pair
from mixharness.benchmarks.starter import templated
from mixharness.benchmarks.task import Benchmark
from mixharness.engines.base import GenerateRequest
from mixharness.engines.codec import ChatCodec
from mixharness.engines.scripted import ScriptedEngine
from mixharness.envs.collect import Collector, Job
from mixharness.rollout import Rollout


async def demonstrate(
    benchmark: Benchmark,
    tasks: Sequence[str],
    harnesses: Sequence[str],
    *,
    codec: ChatCodec,
    make_collector: Callable[[ScriptedEngine], Collector],
    seeds: Sequence[int],
    on_done: Callable[[Rollout], None] | None = None,
) -> list[Conversation]:
    """Runs every (task, harness, seed) for real, answers scripted; returns the conversations that were whole."""
    commands: dict[str, str] = {}

    def script(request: GenerateRequest) -> Mapping[str, Any]:
        messages: Any = request.structured["messages"]
        if any(message["role"] == "tool" for message in messages):
            return {"content": CLOSING}
        tools: Any = request.structured["tools"]
        return {"tool_calls": [{"name": shell_tool(tools), "arguments": {"command": commands[request.session]}}]}

    jobs: list[Job] = []
    for seed in seeds:
        for task in tasks:
            for harness in harnesses:
                job = Job(make_pair(benchmark, task, harness, seed, "-"), f"demo-{seed}-{task}-{len(jobs)}", seed)
                commands[job.rollout_id] = choose_command(
                    templated.demonstrations(job.pair.task), random.Random(job.rollout_id)
                )
                jobs.append(job)
    rollouts = await make_collector(ScriptedEngine(script, codec)).collect(jobs, on_done)
    found = (
        _conversation(rollout, commands[rollout.rollout_id], job) for job, rollout in zip(jobs, rollouts, strict=True)
    )
    return [conversation for conversation in found if conversation is not None]


def _conversation(rollout: Rollout, command: str, job: Job) -> Conversation | None:
    """The last main call with its answer; None when the rollout didn't get that far."""
    answered = [call for call in rollout.tree.calls if call.status == "answered" and call.answer]
    if not rollout.valid or not answered or answered[-1].text.strip() != CLOSING:
        return None
    last = answered[-1]
    assert last.answer is not None
    return Conversation(
        harness=f"{rollout.harness}:{rollout.profile}",
        prompt=job.pair.task.prompts[0],
        command=command,
        tools=last.tools,
        messages=(*last.messages, last.answer),
    )

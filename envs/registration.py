"""Registers an env for every (task, harness) pair of every located benchmark."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym

from mixharness.benchmarks import located
from mixharness.benchmarks.task import Benchmark
from mixharness.harnesses import harness_names

ENTRY_POINT = "mixharness.envs.harness_env:HarnessEnv"


def env_id(benchmark: str, task: str, harness: str) -> str:
    """`<Benchmark>/<task>.<harness>-v0`."""
    return f"{benchmark}/{task}.{harness}-v0"


def register_benchmark(benchmark: Benchmark, **options: object) -> Iterator[str]:
    """Registers one benchmark's pairs, those registered already left alone; yields their ids."""
    harnesses = harness_names()  # reads every installed package's entry points
    for task in benchmark.task_ids():
        for harness in harnesses:
            name = env_id(benchmark.name, task, harness)
            if name not in gym.registry:
                gym.register(
                    name,
                    entry_point=ENTRY_POINT,
                    kwargs={"benchmark": benchmark.name, "task": task, "harness": harness, **options},
                    nondeterministic=True,
                    disable_env_checker=True,
                )
            yield name


def register_all() -> tuple[str, ...]:
    """Every pair that can be made here, by id."""
    return tuple(name for benchmark in located() for name in register_benchmark(benchmark))

"""Which (task, harness) pairs a training step runs: mix-harness training draws both at random, in one batch.

A step's draws follow from the seed and the step's number alone, so a resumed run draws what an unbroken one would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mixharness.errors import ConfigError

Rule = Literal["uniform", "balanced"]


@dataclass(frozen=True)
class Draw:
    """One group to run: a pair by name ("name" or "name:profile" for the harness), on one task instance."""

    task: str
    harness: str
    instance: int


@dataclass(frozen=True)
class MixSchedule:
    """Shuffled passes over all pairs.

    Attributes:
        pairs: groups in a step.
        rule: "uniform": pairs in random order, each once before any comes again; "balanced": the same within each
            harness, and every step has as many groups of one harness as of another (up to one).
        instances: fresh instances of templated tasks: the seeds go up to this number; 0: without end.

    Raises:
        ConfigError: no task or no harness, or a number below 1.
    """

    tasks: Sequence[str]
    harnesses: Sequence[str]
    pairs: int
    seed: int = 0
    rule: Rule = "uniform"
    instances: int = 0

    def __post_init__(self) -> None:
        if not self.tasks or not self.harnesses or self.pairs < 1:
            raise ConfigError(
                f"nothing to mix: {len(self.tasks)} tasks, {len(self.harnesses)} harnesses, {self.pairs} pairs a step"
            )
        if self.rule not in ("uniform", "balanced"):
            raise ConfigError(f"mixing rule {self.rule!r}; valid: uniform, balanced")

    def draw(self, step: int) -> list[Draw]:
        """The groups of a step, from 0."""
        numbers = range(step * self.pairs, (step + 1) * self.pairs)
        return [Draw(*self._pair(number), self._instance(number)) for number in numbers]

    def _pair(self, number: int) -> tuple[str, str]:
        tasks, harnesses = len(self.tasks), len(self.harnesses)
        if self.rule == "balanced":
            turn, harness = divmod(number, harnesses)
            order = self._rng(turn // tasks, harness).permutation(tasks)
            return self.tasks[order[turn % tasks]], self.harnesses[harness]
        order = self._rng(number // (tasks * harnesses)).permutation(tasks * harnesses)
        task, harness = divmod(int(order[number % (tasks * harnesses)]), harnesses)
        return self.tasks[task], self.harnesses[harness]

    def _instance(self, number: int) -> int:
        return int(self._rng(number, 0, 0).integers(self.instances or 2**31))

    def _rng(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *place])

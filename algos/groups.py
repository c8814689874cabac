"""Runs the groups of a step: a group's rollouts share pair and task instance, and differ in their sampling.

A rollout that our side broke (infra_error) is run again, a bounded number of times; then its group goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mixharness.algos.schedule import Draw
from mixharness.engines.base import Sampling
from mixharness.envs.collect import Job
from mixharness.rollout import Pair, Rollout

MakePair = Callable[[Draw], Pair]
OnDone = Callable[[Rollout], None]


class Collector(Protocol):
    """Runs rollouts; `envs.collect.Collector` is the real one."""

    async def collect(self, jobs: Sequence[Job], on_done: OnDone | None = None) -> list[Rollout]:
        """Every job's rollout, in the jobs' order."""
        ...


@dataclass(frozen=True, eq=False)
class Groups:
    """The rollouts of a step.

    Attributes:
        rollouts: the last attempt of each member, group by group.
        group: the group of each: its place among the step's draws.
        retried: earlier attempts that were invalid; they count in the ledger only.
    """

    rollouts: tuple[Rollout, ...]
    group: tuple[int, ...]
    retried: tuple[Rollout, ...]


@dataclass(frozen=True)
class GroupRunner:
    """How groups are run.

    Attributes:
        size: rollouts in a group.
        retries: times that an invalid rollout is run again.
    """

    collector: Collector
    make_pair: MakePair
    size: int
    seed: int = 0
    retries: int = 1
    sampling: Sampling = field(default_factory=Sampling)

    async def run(self, draws: Sequence[Draw], step: int, on_done: OnDone | None = None) -> Groups:
        """Runs every draw `size` times."""
        pairs = [self.make_pair(draw) for draw in draws]
        places = [(group, member) for group in range(len(draws)) for member in range(self.size)]
        rollouts: dict[tuple[int, int], Rollout] = {}
        retried: list[Rollout] = []
        for attempt in range(1 + self.retries):
            wanted = [place for place in places if place not in rollouts or not rollouts[place].valid]
            if not wanted:
                break
            retried += [rollouts[place] for place in wanted if place in rollouts]
            jobs = [self._job(pairs[group], step, group, member, attempt) for group, member in wanted]
            rollouts |= zip(wanted, await self.collector.collect(jobs, on_done), strict=True)
        return Groups(tuple(rollouts[place] for place in places), tuple(group for group, _ in places), tuple(retried))

    def _job(self, pair: Pair, step: int, group: int, member: int, attempt: int) -> Job:
        name = f"{step:05d}-{group:03d}-{member:02d}" + (f"-retry{attempt}" if attempt else "")
        seed = np.random.SeedSequence([self.seed, step, group, member, attempt]).generate_state(1)[0]
        return Job(pair, name, int(seed >> 1), self.sampling)

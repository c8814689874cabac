"""Starter, the embedded suite: tasks of our own in ClawGym's six categories.

`templated.py` makes fresh one-command tasks from a seed; `handmade.py` reads the longer ones below `tasks/`. Both are
graded by the programs in `grader/`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from mixharness.benchmarks.starter import handmade, templated
from mixharness.benchmarks.task import Benchmark, Task
from mixharness.errors import UnknownName


class Starter(Benchmark):
    """36 tasks, half of each skill or category for training; an oracle scores 1 on each, doing nothing 0."""

    name = "Starter"
    floor = 0.0

    @cached_property
    def digest(self) -> str:
        """Over every file of this package: tasks, templates and graders."""
        here, total = Path(__file__).parent, hashlib.sha256()
        for path in sorted(p for p in here.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            total.update(f"{path.relative_to(here).as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
        return total.hexdigest()

    def task_ids(self) -> Sequence[str]:
        return (*templated.task_ids(), *handmade.task_ids())

    def load(self, task_id: str, seed: int | None = None) -> Task:
        if task_id in templated.task_ids():
            return templated.load(task_id, seed)
        if task_id in handmade.task_ids():
            return handmade.load(task_id)
        raise UnknownName("Starter task", task_id, self.task_ids())

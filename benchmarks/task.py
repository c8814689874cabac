"""The task contract: instruction, workspace files, grader; and the benchmark that holds tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

Grading = Literal["automated", "llm_judge", "hybrid"]


@dataclass(frozen=True)
class Grader:
    """A program that scores a workspace, run after the agent, in a fresh sandbox, on a snapshot.

    Attributes:
        files: relative path → bytes, shown read-only at /grader.
        argv: what to run; its working directory is `cwd`; the last JSON object on stdout maps part → 0..1.
        env: extra environment. `MIXHARNESS_PAYLOAD` always names a JSON {final_message, transcript, metadata}.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0
    cwd: str | None = None


@dataclass(frozen=True)
class Task:
    """One task instance, ready to run.

    Attributes:
        prompts: the user's messages; more than one needs a multi-turn harness.
        files: workspace content, relative path → bytes.
        workdir: where the workspace stands inside the sandbox.
        oracle: a shell script that solves it (run in workdir), or None.
        seed: the instance's seed; None for a task with a single instance.
        split: "train", "held_out" or None.
        tags: free labels, for example "templated".
    """

    id: str
    prompts: tuple[str, ...]
    files: Mapping[str, bytes]
    grader: Grader
    category: str = ""
    grading: Grading = "automated"
    workdir: str = "/workspace"
    timeout_s: float = 600.0
    mcp_servers: tuple[str, ...] = ()
    oracle: str | None = None
    seed: int | None = None
    split: Literal["train", "held_out"] | None = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Grade:
    """A verdict. `score` is None exactly when `valid` is False, and `reason` then says why."""

    score: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    valid: bool = True
    reason: str = ""


class Benchmark(ABC):
    """A set of tasks with a digest."""

    name: ClassVar[str]
    """As in env ids: "Starter"."""
    floor: ClassVar[Mapping[str, float] | float] = 0.0
    """What a do-nothing agent scores, per task or for all."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """sha256 over every task and grader file, hex."""

    @abstractmethod
    def task_ids(self) -> Sequence[str]:
        """Every task's id, in order, cheaply (no file of a task is read)."""

    @abstractmethod
    def load(self, task_id: str, seed: int | None = None) -> Task:
        """One task; templated ones give a fresh instance per seed (None: the canonical one).

        Raises:
            UnknownName: no such task.
            TaskFormatError: a part is missing or malformed.
        """


class LocatedBenchmark(Benchmark):
    """A benchmark whose files are where the user has them."""

    def __init__(self, path: Path) -> None:
        self.path = path

"""Grading against a fake sandbox: what the grader is shown, and what each of its failures becomes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from mixharness.benchmarks import grading
from mixharness.benchmarks.grading import grade, grade_all
from mixharness.benchmarks.task import Benchmark, Grade, Grader, Task
from mixharness.benchmarks.workspace import write_files
from mixharness.errors import ConfigError, SandboxError
from mixharness.sandboxes.base import Check, ExecResult, SandboxSpec

GOOD = ExecResult(0, '{"a": 1, "b": 0.5}', "")


@dataclass
class FakeSandbox:
    """Answers every exec with what `answer` makes of the spec."""

    spec: SandboxSpec
    answer: Callable[[SandboxSpec], ExecResult]
    argv: tuple[str, ...] = ()
    timeout_s: float | None = None
    closed: bool = False
    kind: str = "fake"

    async def exec(self, argv: Sequence[str], *, timeout_s: float | None = None, **_: Any) -> ExecResult:
        self.argv, self.timeout_s = tuple(argv), timeout_s
        return self.answer(self.spec)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True


@dataclass
class FakeProvider:
    """Makes fake sandboxes and remembers them."""

    answer: Callable[[SandboxSpec], ExecResult] = lambda spec: GOOD
    made: list[FakeSandbox] = field(default_factory=list)
    kind: str = "fake"

    def check(self) -> Check:
        return Check("fake", True, "")

    async def create(self, spec: SandboxSpec) -> Any:
        self.made.append(FakeSandbox(spec, self.answer))
        return self.made[-1]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_files(tmp_path / "w", {"out/a.txt": b"done\n"})
    return tmp_path / "w"


TASK = Task(
    id="t",
    prompts=("Do it.",),
    files={},
    grader=Grader(("check", "--all"), files={"check.py": b"pass"}, env={"EXTRA": "1"}, timeout_s=7, cwd="/tmp"),
    category="Systems",
    workdir="/srv/agent/workspace",
    seed=4,
)


async def test_the_score_is_the_unweighted_mean_of_the_parts(workspace: Path) -> None:
    assert await grade(TASK, workspace, provider=FakeProvider()) == Grade(0.75, {"a": 1.0, "b": 0.5})


async def test_what_the_grader_is_shown(workspace: Path) -> None:
    seen: dict[str, Any] = {}

    def look(spec: SandboxSpec) -> ExecResult:
        mounts = {mount.target: mount for mount in spec.mounts}
        seen["copy"] = (spec.workspace / "out/a.txt").read_bytes()
        seen["grader"] = (mounts["/grader"].source / "check.py").read_bytes()
        seen["payload"] = json.loads((mounts["/payload"].source / "payload.json").read_text())
        seen["read_only"] = all(mount.read_only for mount in spec.mounts)
        return GOOD

    provider = FakeProvider(look)
    await grade(TASK, workspace, final_message="Done \ud800.", transcript=[{"type": "message"}], provider=provider)
    sandbox = provider.made[0]
    assert seen == {
        "copy": b"done\n",
        "grader": b"pass",
        "payload": {
            "final_message": "Done \ud800.",
            "transcript": [{"type": "message"}],
            "metadata": {"task_id": "t", "seed": 4, "category": "Systems", "left_out": []},
        },
        "read_only": True,
    }
    assert sandbox.spec.workdir == "/srv/agent/workspace"
    assert sandbox.spec.workspace != workspace
    assert sandbox.spec.env["MIXHARNESS_PAYLOAD"] == "/payload/payload.json" and sandbox.spec.env["EXTRA"] == "1"
    assert sandbox.argv[-3:] == ("/tmp", "check", "--all")
    assert sandbox.timeout_s == 7
    assert sandbox.closed
    assert not sandbox.spec.workspace.exists()


async def test_the_workspace_itself_is_only_read(workspace: Path) -> None:
    def vandal(spec: SandboxSpec) -> ExecResult:
        (spec.workspace / "out/a.txt").write_bytes(b"changed")
        (spec.workspace / "new").mkdir()
        return GOOD

    await grade(TASK, workspace, provider=FakeProvider(vandal))
    assert (workspace / "out/a.txt").read_bytes() == b"done\n" and os.listdir(workspace) == ["out"]


async def test_what_could_not_be_copied_is_told_to_the_grader(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    seen: list[str] = []

    def look(spec: SandboxSpec) -> ExecResult:
        payload = next(mount for mount in spec.mounts if mount.target == "/payload").source / "payload.json"
        seen.extend(json.loads(payload.read_text())["metadata"]["left_out"])
        return GOOD

    await grade(TASK, workspace, provider=FakeProvider(look))
    assert seen == ["pipe"]


FAILURES = {
    "crash": (ExecResult(1, '{"a": 1}', "Traceback: boom"), "exited with 1; its output ends: .*boom"),
    "hang": (ExecResult(None, "thinking", "", timed_out=True), "ran past its 7 s; its output ends: thinking"),
    "memory": (ExecResult(137, "", "", oom=True), "ran out of its 1024 MB of memory; it printed nothing"),
    "silence": (ExecResult(0, "", ""), "no JSON object; it printed nothing"),
    "junk": (ExecResult(0, "all good!", ""), "no JSON object; its output ends: all good!"),
    "string": (ExecResult(0, '{"a": "high"}', ""), "part 'a' is 'high', not a number"),
    "nan": (ExecResult(0, '{"a": NaN}', ""), "part 'a' is nan, not in 0..1"),
    "beyond": (ExecResult(0, '{"a": 1, "b": 2}', ""), "part 'b' is 2.0, not in 0..1"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_grader_that_fails_is_never_a_zero(workspace: Path, name: str) -> None:
    result, reason = FAILURES[name]
    verdict = await grade(TASK, workspace, provider=FakeProvider(lambda spec: result))
    assert verdict.score is None and not verdict.valid and verdict.parts == {}
    assert re.search(reason, verdict.reason, re.S)


async def test_a_sandbox_that_fails_is_invalid_too(workspace: Path) -> None:
    def fail(spec: SandboxSpec) -> ExecResult:
        raise SandboxError("the daemon is gone")

    verdict = await grade(TASK, workspace, provider=FakeProvider(fail))
    assert not verdict.valid and "the daemon is gone" in verdict.reason


async def test_a_workspace_that_is_gone_is_invalid(tmp_path: Path) -> None:
    verdict = await grade(TASK, tmp_path / "gone", provider=FakeProvider())
    assert not verdict.valid and "gone" in verdict.reason


class Three(Benchmark):
    """Three tasks whose files say their name."""

    name = "Three"
    digest = ""

    def task_ids(self) -> Sequence[str]:
        return ("x", "y", "z")

    def load(self, task_id: str, seed: int | None = None) -> Task:
        return Task(id=task_id, prompts=("p",), files={"name": task_id.encode()}, grader=Grader(("true",)))


async def test_all_untouched_workspaces_keyed_by_task() -> None:
    def by_name(spec: SandboxSpec) -> ExecResult:
        name = (spec.workspace / "name").read_text()
        return ExecResult(0, json.dumps({name: {"x": 0, "y": 1}[name]}), "") if name != "z" else ExecResult(3, "", "")

    seen: list[str] = []

    def progress(task_id: str, verdict: Grade) -> None:
        seen.append(task_id)

    grades: Mapping[str, Grade] = await grade_all(Three(), provider=FakeProvider(by_name), progress=progress)
    assert list(grades) == ["x", "y", "z"] and sorted(seen) == ["x", "y", "z"]
    assert grades["x"] == Grade(0.0, {"x": 0.0}) and grades["y"].score == 1.0 and not grades["z"].valid


class Broken(FakeProvider):
    def check(self) -> Check:
        return Check("fake", False, "not installed", "apt-get install fake")


def test_no_sandbox_at_all_says_how_to_fix_each(monkeypatch: pytest.MonkeyPatch) -> None:
    grading.default_provider.cache_clear()
    monkeypatch.setattr(grading, "get_provider", lambda kind: Broken())
    with pytest.raises(ConfigError, match=r"fake: not installed. Fix: apt-get install fake; fake: "):
        grading.default_provider()


def test_bubblewrap_is_the_first_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    grading.default_provider.cache_clear()
    monkeypatch.setattr(
        grading, "get_provider", lambda kind: Broken() if kind == "bubblewrap" else FakeProvider(kind=kind)
    )
    assert grading.default_provider().kind == "docker"
    grading.default_provider.cache_clear()
    monkeypatch.setattr(grading, "get_provider", lambda kind: FakeProvider(kind=kind))
    assert grading.default_provider().kind == "bubblewrap"
    grading.default_provider.cache_clear()

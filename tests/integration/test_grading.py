"""Grading for real: every Starter task's oracle and floor, careless work, foreign checkers, graders that fail."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mixharness.benchmarks import get_benchmark
from mixharness.benchmarks.grading import grade, grade_all
from mixharness.benchmarks.starter import handmade, templated
from mixharness.benchmarks.starter.templated import Record, demonstrations
from mixharness.benchmarks.task import Grade, Grader, Task
from mixharness.benchmarks.workspace import write_files
from mixharness.sandboxes import get_provider
from mixharness.sandboxes.base import SandboxProvider, SandboxSpec

pytestmark = pytest.mark.integration

STARTER = get_benchmark("Starter")
CLAWGYM = get_benchmark("ClawGymBench", Path(__file__).parents[1] / "benchmarks/fixtures/ClawGym-Agents")
SKILLS = ("rename-memo", "collect-errors", "count-votes", "excerpt-story", "sort-stops", "version-app")


def working(kind: str) -> SandboxProvider:
    provider = get_provider(kind)
    check = provider.check()
    if not check.ok:
        pytest.skip(f"{kind}: {check.detail}. Fix: {check.fix}")
    return provider


@pytest.fixture(scope="module")
def bubblewrap() -> SandboxProvider:
    return working("bubblewrap")


@pytest.fixture(scope="module", params=["bubblewrap", "docker"])
def provider(request: pytest.FixtureRequest) -> SandboxProvider:
    return working(request.param)


async def attempt(task: Task, script: str, folder: Path, provider: SandboxProvider) -> Grade:
    """Runs a script in the task's workspace, in a sandbox as an agent's, then grades what it left."""
    write_files(folder, task.files)
    folder.parent.chmod(0o755)
    if script:
        async with await provider.create(SandboxSpec("oracle", folder, task.workdir)) as sandbox:
            ran = await sandbox.exec(["bash", "-c", script], timeout_s=60)
        assert ran.exit_code == 0, ran
    return await grade(task, folder, provider=provider)


async def few_at_once(jobs: Sequence[Awaitable[Grade]], limit: int = 2) -> list[Grade]:
    slots = asyncio.Semaphore(limit)

    async def one(job: Awaitable[Grade]) -> Grade:
        async with slots:
            return await job

    return await asyncio.gather(*map(one, jobs))


@pytest.mark.parametrize("seed", [None, 1, 2])
async def test_the_oracle_scores_one_on_every_templated_task(
    seed: int | None, tmp_path: Path, bubblewrap: SandboxProvider
) -> None:
    tasks = [STARTER.load(task_id, seed) for task_id in templated.task_ids()]
    grades = await few_at_once([attempt(t, t.oracle or "", tmp_path / t.id, bubblewrap) for t in tasks])
    assert {task.id: grade.score for task, grade in zip(tasks, grades, strict=True)} == {t.id: 1.0 for t in tasks}


async def test_the_oracle_scores_one_on_every_handmade_task(tmp_path: Path, bubblewrap: SandboxProvider) -> None:
    tasks = [STARTER.load(task_id) for task_id in handmade.task_ids()]
    grades = await few_at_once([attempt(t, t.oracle or "", tmp_path / t.id, bubblewrap) for t in tasks])
    assert {t.id: grade.parts for t, grade in zip(tasks, grades, strict=True) if grade.score != 1.0} == {}


@pytest.mark.parametrize("seed", [5])
async def test_doing_nothing_scores_zero_on_every_templated_task(
    seed: int, tmp_path: Path, bubblewrap: SandboxProvider
) -> None:
    tasks = [STARTER.load(task_id, seed) for task_id in templated.task_ids()]
    grades = await few_at_once([attempt(task, "", tmp_path / task.id, bubblewrap) for task in tasks])
    assert all(grade == Grade(0.0, {"result": 0.0, "record": 0.0, "whole": 0.0}) for grade in grades)


async def test_the_floor_of_starter_is_zero_in_every_part(bubblewrap: SandboxProvider) -> None:
    grades = await grade_all(STARTER, provider=bubblewrap)
    assert list(grades) == list(STARTER.task_ids())
    assert all(grade.valid and not any(grade.parts.values()) for grade in grades.values())


@pytest.mark.parametrize("task_id", SKILLS)
async def test_careless_work_loses_the_parts_it_spoils(
    task_id: str, tmp_path: Path, bubblewrap: SandboxProvider
) -> None:
    task = STARTER.load(task_id, 11)
    records: tuple[Record, ...] = ("append", "skip", "overwrite")
    ways = list(itertools.product((True, False), records))
    scripts = [demonstrations(task).command(place, record) for place, record in ways]
    jobs = [attempt(task, script, tmp_path / str(i), bubblewrap) for i, script in enumerate(scripts)]
    for (place, record), verdict in zip(ways, await few_at_once(jobs), strict=True):
        parts = {"result": float(place), "record": float(record == "append")}
        assert verdict.parts == {**parts, "whole": float(all(parts.values()))}


async def test_a_stray_file_spoils_the_whole(tmp_path: Path, bubblewrap: SandboxProvider) -> None:
    task = STARTER.load("sort-agenda", 2)
    for i, extra in enumerate(("touch notes.tmp", "ln -s out x", "rm */*.txt.bak 2>/dev/null; mkfifo pipe")):
        verdict = await attempt(task, f"{task.oracle} && {{ {extra}; }}", tmp_path / str(i), bubblewrap)
        assert verdict.parts == {"result": 1.0, "record": 1.0, "whole": 0.0}


async def test_a_missing_final_line_end_is_forgiven_and_nothing_else(
    tmp_path: Path, bubblewrap: SandboxProvider
) -> None:
    task, made = STARTER.load("count-votes", 3), templated.make_instance("count-votes", 3)
    edits = {f"truncate -s -1 {made.dst}": 1.0, f"echo >> {made.dst}": 0.0, f"sed -i 's/$/\\r/' {made.dst}": 0.0}
    for i, (edit, result) in enumerate(edits.items()):
        verdict = await attempt(task, f"{task.oracle} && {edit}", tmp_path / str(i), bubblewrap)
        assert verdict.parts["result"] == result


async def test_both_kinds_of_sandbox_agree(tmp_path: Path, provider: SandboxProvider) -> None:
    task = STARTER.load("rename-report", 1)
    assert (await attempt(task, task.oracle or "", tmp_path / "done", provider)).score == 1.0
    assert (await attempt(task, "", tmp_path / "nothing", provider)).score == 0.0


async def test_a_foreign_checker_of_clawgyms_kind(tmp_path: Path, provider: SandboxProvider) -> None:
    task = CLAWGYM.load("task_0000")
    assert await attempt(task, "", tmp_path / "0", provider) == Grade(0.0, {"exists": 0.0, "right": 0.0})
    verdict = await attempt(task, "mkdir out && echo 54 > out/total.txt", tmp_path / "1", provider)
    assert verdict == Grade(1.0, {"exists": 1.0, "right": 1.0})


async def test_a_foreign_checker_that_runs_the_work_and_reads_the_payload(
    tmp_path: Path, bubblewrap: SandboxProvider
) -> None:
    task = CLAWGYM.load("task_0001")
    write_files(tmp_path / "w", {**task.files, "log.txt": b"DONE\n"})
    (tmp_path / "w/tools/double.py").write_text("import sys\n\nprint(int(sys.argv[1]) * 2)\n")
    verdict = await grade(
        task, tmp_path / "w", final_message="All done.", transcript=[{"type": "message"}] * 3, provider=bubblewrap
    )
    assert verdict == Grade(0.9375, {"doubles": 1.0, "logged": 1.0, "said_so": 1.0, "talked": 0.75})


def program(source: str, timeout_s: float = 20.0) -> Task:
    """A task whose grader is this Python program."""
    grader = Grader(("python3", "-I", "/grader/g.py"), files={"g.py": source.encode()}, timeout_s=timeout_s)
    return Task(id="t", prompts=("p",), files={"a": b"a"}, grader=grader)


FAILING = {
    "crash": ("raise RuntimeError('boom')", "exited with 1.*boom"),
    "late crash": ("print('{\"a\": 1}', flush=True)\nraise SystemExit(3)", "exited with 3"),
    "no memory": ("x = bytearray(3 << 30)\nprint('{\"a\": 1}')", "memory|MemoryError|exited with"),
    "junk": ("print('fine')", "no JSON object"),
}


@pytest.mark.parametrize("name", FAILING)
async def test_a_failing_grader_makes_the_grade_invalid(name: str, tmp_path: Path, bubblewrap: SandboxProvider) -> None:
    source, reason = FAILING[name]
    verdict = await attempt(program(source), "", tmp_path / "w", bubblewrap)
    assert verdict.score is None and not verdict.valid
    assert re.search(reason, verdict.reason, re.S), verdict.reason


async def test_a_hanging_grader_ends_at_its_limit(tmp_path: Path, provider: SandboxProvider) -> None:
    task = program("import time\nprint('thinking', flush=True)\ntime.sleep(600)", timeout_s=1.5)
    verdict = await attempt(task, "", tmp_path / "w", provider)
    assert not verdict.valid and "ran past its 1.5 s; its output ends: thinking" in verdict.reason


WORLD = """
import json, os, socket, sys
def fails(call):
    try:
        call()
    except OSError:
        return True
    return False
print(json.dumps({
    "neutral_directory": os.getcwd() == "/",
    "grader_read_only": fails(lambda: open("/grader/new", "w")),
    "payload_read_only": fails(lambda: open(os.environ["MIXHARNESS_PAYLOAD"], "a")),
    "workspace_writable": not fails(lambda: open("/workspace/new", "w")),
    "not_root": os.getuid() != 0,
    "no_network": fails(lambda: socket.create_connection(("192.0.2.1", 80), 2)),
    "only_loopback": set(os.listdir("/sys/class/net") if os.path.isdir("/sys/class/net") else ["lo"]) <= {"lo"},
}))
"""


async def test_what_a_grader_can_reach(tmp_path: Path, provider: SandboxProvider) -> None:
    verdict = await attempt(program(WORLD), "", tmp_path / "w", provider)
    assert verdict.score == 1.0, verdict
    assert not (tmp_path / "w/new").exists()


async def test_the_example_benchmark_of_the_docs(tmp_path: Path, bubblewrap: SandboxProvider) -> None:
    docs = (Path(__file__).parents[2] / "docs/benchmarks.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", docs, re.S)
    module: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs/benchmarks.md", "exec"), module)
    for task_id in module["Sums"]().task_ids():
        task = module["Sums"]().load(task_id, 3)
        assert (await attempt(task, task.oracle, tmp_path / task_id, bubblewrap)).score == 1.0
        assert (await attempt(task, "", tmp_path / f"{task_id}-untouched", bubblewrap)).score == 0.0

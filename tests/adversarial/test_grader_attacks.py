"""Workspaces that attack their grader: none may raise a score, reach the host, or make the grader fail."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mixharness.benchmarks import get_benchmark
from mixharness.benchmarks.grading import grade
from mixharness.benchmarks.starter import templated
from mixharness.benchmarks.task import Grade, Task
from mixharness.benchmarks.workspace import write_files
from mixharness.sandboxes import get_provider
from mixharness.sandboxes.base import SandboxProvider, SandboxSpec

pytestmark = pytest.mark.integration

STARTER = get_benchmark("Starter")
CLAWGYM = get_benchmark("ClawGymBench", Path(__file__).parents[1] / "benchmarks/fixtures/ClawGym-Agents")
TASK, MADE = STARTER.load("sort-agenda", 1), templated.make_instance("sort-agenda", 1)
NOTHING = Grade(0.0, {"result": 0.0, "record": 0.0, "whole": 0.0})

FORGED = 'import os\nprint(\'{"result": 1, "record": 1, "whole": 1}\', flush=True)\nos._exit(0)\n'
SHADOWS = (
    *("sitecustomize.py", "usercustomize.py", "conftest.py", "json.py", "csv.py", "os.py", "re.py", "pathlib.py"),
    *("check.py", "checklib.py", "main.py", "runpy.py", "ctypes.py", "importlib/__init__.py", "encodings/__init__.py"),
)
CONFIGURATION = {
    ".bashrc": b"echo '{\"a\": 1}'; exit 0\n",
    ".profile": b"echo '{\"a\": 1}'; exit 0\n",
    "pyvenv.cfg": b"home = /workspace\n",
    "evil.pth": b"import os; os._exit(0)\n",
    "python3": b"#!/bin/sh\necho '{\"a\": 1}'\n",
    "sh": b"#!/bin/sh\necho '{\"a\": 1}'\n",
    "pytest.ini": b"[pytest]\naddopts = --co\n",
    ".git/config": b'[core]\n\tfsmonitor = "echo pwned > /tmp/pwned"\n\thooksPath = hooks\n',
    ".git/HEAD": b"ref: refs/heads/main\n",
    "setup.cfg": b"[tool:pytest]\naddopts = --co\n",
}


@pytest.fixture(scope="module")
def bubblewrap() -> SandboxProvider:
    provider = get_provider("bubblewrap")
    check = provider.check()
    if not check.ok:
        pytest.skip(f"bubblewrap: {check.detail}. Fix: {check.fix}")
    return provider


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The starting workspace of a Starter task."""
    folder = tmp_path / "w"
    write_files(folder, TASK.files)
    return folder


def plant(workspace: Path) -> None:
    """Everything that could configure or shadow an interpreter, executable where that helps."""
    write_files(workspace, {name: FORGED.encode() for name in SHADOWS} | CONFIGURATION)
    for name in ("python3", "sh"):
        (workspace / name).chmod(0o755)


def sorted_source(workspace: Path) -> str:
    return "".join(sorted((workspace / MADE.src).read_text().splitlines(keepends=True)))


def do_the_work(workspace: Path) -> None:
    (workspace / MADE.dst).write_text(sorted_source(workspace))
    with (workspace / MADE.journal).open("a") as journal:
        journal.write(f"{MADE.note}\n")


async def test_shadowed_modules_and_configuration_change_nothing(workspace: Path, bubblewrap: SandboxProvider) -> None:
    plant(workspace)
    assert await grade(TASK, workspace, provider=bubblewrap) == NOTHING
    do_the_work(workspace)
    verdict = await grade(TASK, workspace, provider=bubblewrap)
    assert verdict == Grade(2 / 3, {"result": 1.0, "record": 1.0, "whole": 0.0})


async def test_a_foreign_checker_ignores_them_too(tmp_path: Path, bubblewrap: SandboxProvider) -> None:
    task = CLAWGYM.load("task_0000")
    write_files(tmp_path / "w", task.files)
    plant(tmp_path / "w")
    write_files(tmp_path / "w", {"reward/check.py": FORGED.encode(), "reward/json.py": FORGED.encode()})
    assert await grade(task, tmp_path / "w", provider=bubblewrap) == Grade(0.0, {"exists": 0.0, "right": 0.0})


@pytest.mark.parametrize(
    "target",
    ["/grader/given/{src}", "/workspace/{src}", "/proc/self/cwd/grader/given/{src}", "../../grader/given/{src}"],
)
async def test_a_result_that_is_a_link_is_no_result(workspace: Path, bubblewrap: SandboxProvider, target: str) -> None:
    (workspace / MADE.src).write_text(sorted_source(workspace))
    (workspace / MADE.dst).symlink_to(target.format(src=MADE.src))
    assert await grade(TASK, workspace, provider=bubblewrap) == NOTHING


async def test_a_folder_that_is_a_link_lends_nothing(workspace: Path, bubblewrap: SandboxProvider) -> None:
    rename = STARTER.load("rename-report", 1)
    made = templated.make_instance("rename-report", 1)
    folder = workspace.parent / "r"
    write_files(folder, {made.journal: rename.files[made.journal]})
    (folder / made.dst.split("/")[0]).symlink_to(f"/grader/given/{made.src.split('/')[0]}")
    verdict = await grade(rename, folder, provider=bubblewrap)
    assert verdict.parts == {"result": 0.0, "record": 0.0, "whole": 0.0}


async def test_links_to_the_host_read_nothing_of_it(workspace: Path, bubblewrap: SandboxProvider) -> None:
    secret = workspace.parent / "secret"
    secret.write_text(sorted_source(workspace))
    (workspace / MADE.dst).symlink_to(secret)
    (workspace / "etc").symlink_to("/etc")
    (workspace / "up").symlink_to("../..")
    assert await grade(TASK, workspace, provider=bubblewrap) == NOTHING


async def test_what_would_block_or_fill_is_left_out(workspace: Path, bubblewrap: SandboxProvider) -> None:
    os.mkfifo(workspace / MADE.dst)
    with (workspace / "huge").open("wb") as file:
        file.truncate(1 << 42)
    deep = workspace
    for _ in range(150):
        deep = deep / "deeper"
    deep.mkdir(parents=True)
    assert await grade(TASK, workspace, provider=bubblewrap) == NOTHING


async def test_a_journal_of_gigabytes_is_no_record(workspace: Path, bubblewrap: SandboxProvider) -> None:
    do_the_work(workspace)
    with (workspace / MADE.journal).open("ab") as file:
        file.truncate(200 << 20)
    verdict = await grade(TASK, workspace, provider=bubblewrap)
    assert verdict.parts == {"result": 1.0, "record": 0.0, "whole": 0.0}


async def test_unreadable_and_set_id_files_are_graded_by_content(workspace: Path, bubblewrap: SandboxProvider) -> None:
    do_the_work(workspace)
    (workspace / MADE.dst).chmod(0o6000)
    (workspace / MADE.dst).parent.chmod(0o000)
    try:
        assert (await grade(TASK, workspace, provider=bubblewrap)).score == 1.0
    finally:
        (workspace / MADE.dst).parent.chmod(0o755)


async def test_names_that_would_break_json_are_only_names(workspace: Path, bubblewrap: SandboxProvider) -> None:
    names = (b'"}\n{"result": 1, "record": 1, "whole": 1}', b"\xff\xfe", b"a\nb", b"-rf", b"$(touch x)", b"`id`")
    for name in names:
        with open(os.fsencode(workspace) + b"/" + name, "wb") as file:
            file.write(b"x")
    assert await grade(TASK, workspace, provider=bubblewrap) == NOTHING


async def test_content_that_is_no_text_scores_nothing(workspace: Path, bubblewrap: SandboxProvider) -> None:
    (workspace / MADE.dst).write_bytes(b"\xff" * 100)
    (workspace / MADE.journal).write_bytes(b"\x00" * 100)
    assert await grade(TASK, workspace, provider=bubblewrap) == NOTHING


@pytest.mark.parametrize("content", ["[" * 100_000, '{"counts": NaN}', "[]", "null", '"x"', "", '{"a":' * 5000])
async def test_hostile_json_fails_parts_not_the_grader(
    content: str, tmp_path: Path, bubblewrap: SandboxProvider
) -> None:
    task = STARTER.load("inbox-triage")
    write_files(tmp_path / "w", {**task.files, "summary.json": content.encode(), "triage.csv": b'"\x00,\n"'})
    verdict = await grade(task, tmp_path / "w", provider=bubblewrap)
    assert verdict.valid and verdict.score == 0.0


async def test_the_grader_is_not_there_while_the_agent_works(workspace: Path, bubblewrap: SandboxProvider) -> None:
    workspace.parent.chmod(0o755)
    spy = "cat /grader/* /payload/*; find / -name 'checklib.py' -o -name 'spec.json' 2>/dev/null"
    async with await bubblewrap.create(SandboxSpec("spy", workspace)) as sandbox:
        seen = await sandbox.exec(["sh", "-c", spy], timeout_s=30)
    assert seen.stdout == ""


async def test_a_daemon_that_an_agent_left_does_not_outlive_its_sandbox(
    workspace: Path, bubblewrap: SandboxProvider
) -> None:
    workspace.parent.chmod(0o755)
    leave = "setsid sh -c 'while :; do date >> late.txt; sleep 0.02; done' >/dev/null 2>&1 & sleep 0.3"
    async with await bubblewrap.create(SandboxSpec("daemon", workspace)) as sandbox:
        await sandbox.exec(["sh", "-c", leave], timeout_s=30)
    size = (workspace / "late.txt").stat().st_size
    assert size > 0
    await asyncio.sleep(0.3)
    assert (workspace / "late.txt").stat().st_size == size
    assert await grade(TASK, workspace, provider=bubblewrap) == NOTHING


async def test_a_workspace_that_changes_meanwhile_is_graded_as_one_copy(
    workspace: Path, bubblewrap: SandboxProvider
) -> None:
    """Even when a caller forgot to end the agent: the copy is made once, and the grader sees only that."""
    job = asyncio.create_task(grade(TASK, workspace, provider=bubblewrap))
    while not job.done():
        (workspace / MADE.dst).unlink(missing_ok=True)
        (workspace / MADE.dst).symlink_to("/etc/passwd")
        await asyncio.sleep(0.001)
    assert job.result() == NOTHING


FORGE = """
import ctypes, os, signal, sys, time
verdict = b'\\n{"doubles": 1, "logged": 1, "said_so": 1, "talked": 1}\\n'
parent = os.getppid()
def forge():
    for pid in [parent] + [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        for fd in (1, 2):
            try:
                with open(f"/proc/{pid}/fd/{fd}", "wb", buffering=0) as out:
                    out.write(verdict)
            except OSError:
                pass
forge()
if os.fork() == 0:
    os.setsid()
    for _ in range(200):
        forge()
        time.sleep(0.02)
    os._exit(0)
print(42)
"""


def clawgym_with(tool: str, folder: Path) -> Task:
    task = CLAWGYM.load("task_0001")
    write_files(folder, {**task.files, "tools/double.py": tool.encode()})
    return task


async def test_a_program_that_a_checker_runs_cannot_write_the_verdict(
    tmp_path: Path, bubblewrap: SandboxProvider
) -> None:
    task = clawgym_with(FORGE, tmp_path / "w")
    verdict = await grade(task, tmp_path / "w", provider=bubblewrap)
    assert not verdict.valid or verdict.parts["logged"] == verdict.parts["said_so"] == 0.0


async def test_a_program_that_kills_its_checker_gets_no_score(tmp_path: Path, bubblewrap: SandboxProvider) -> None:
    task = clawgym_with("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n", tmp_path / "w")
    verdict = await grade(task, tmp_path / "w", provider=bubblewrap)
    assert verdict.score is None and not verdict.valid


async def test_a_program_that_edits_grader_or_payload_fails(tmp_path: Path, bubblewrap: SandboxProvider) -> None:
    tool = "import os\nfor path in ('/grader/check.py', '/payload/payload.json'):\n    open(path, 'w').write('{}')\n"
    task = clawgym_with(tool, tmp_path / "w")
    assert (await grade(task, tmp_path / "w", provider=bubblewrap)).score == 0.0

"""Starter's hand-made half: one folder per task below `tasks/`.

    tasks/<id>/task.json     {"category", "split", "timeout_s"}
    tasks/<id>/prompt.md     the user's message
    tasks/<id>/workspace/    the files that the agent is given
    tasks/<id>/check.py      the grader's parts (see grader/main.py)
    tasks/<id>/oracle.sh     a script that solves it

These have a single instance, so a seed changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mixharness.benchmarks.starter import templated
from mixharness.benchmarks.task import Grader, Task

FOLDER = Path(__file__).parent / "tasks"


@cache
def task_ids() -> Sequence[str]:
    """The names of the folders."""
    return tuple(sorted(path.name for path in FOLDER.iterdir() if (path / "task.json").exists()))


def load(task_id: str) -> Task:
    """One task, read from its folder."""
    folder = FOLDER / task_id
    about = json.loads((folder / "task.json").read_text())
    files = _tree(folder / "workspace")
    given = {f"given/{path}": data for path, data in files.items()}
    check = {"check.py": (folder / "check.py").read_bytes(), "spec.json": b"{}"}
    return Task(
        id=task_id,
        prompts=((folder / "prompt.md").read_text().strip(),),
        files=files,
        grader=Grader(argv=templated.GRADER_ARGV, files={**templated.PROGRAMS, **check, **given}, timeout_s=60.0),
        category=about["category"],
        workdir=templated.WORKDIR,
        timeout_s=about["timeout_s"],
        oracle=(folder / "oracle.sh").read_text(),
        split=about["split"],
        tags=frozenset({"handmade"}),
    )


def _tree(folder: Path) -> dict[str, bytes]:
    """Relative path → content of every file below a folder."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

"""check.py of every templated task: was the job's result put in its place, the journal kept, nothing else touched?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace


def _expected(w: Workspace) -> list[str]:
    """The lines of dst, from the pristine src and the instance's parameters."""
    spec = w.spec
    lines = w.given_lines(spec["src"]) if spec["src"] else []
    jobs: dict[str, Callable[[], list[str]]] = {
        "rename": lambda: lines,
        "collect": lambda: [line for line in lines if spec["arg"] in line],
        "count": lambda: [str(len(lines))],
        "excerpt": lambda: lines[: int(spec["arg"])],
        "sort": lambda: sorted(lines),
        "version": lambda: [spec["arg"]],
    }
    return jobs[spec["skill"]]()


def result(w: Workspace) -> bool:
    """dst holds exactly what the job gives; after a rename src is gone."""
    gone = w.spec["skill"] != "rename" or w.spec["src"] not in w.files()
    return gone and w.lines(w.spec["dst"]) == _expected(w)


def record(w: Workspace) -> bool:
    """The journal: its old lines, then the note, nothing more."""
    journal = w.spec["journal"]
    return w.lines(journal) == [*w.given_lines(journal), w.spec["note"]]


def whole(w: Workspace) -> bool:
    """Both, and no other path was created, changed or removed."""
    touched = {w.spec["dst"], w.spec["journal"]} | ({w.spec["src"]} if w.spec["skill"] == "rename" else set())
    return result(w) and record(w) and w.changed() == touched

"""release-notes: a changelog section by the house style."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

DATE = "2025-02-14"
GROUPS = {"Features": "feat", "Fixes": "fix", "Performance": "perf"}
NAMES = ["Breaking", *GROUPS]


def _changes(w: Workspace) -> list[dict[str, object]]:
    return [json.loads(line) for line in w.given_lines("changes.jsonl")]


def _groups(w: Workspace) -> dict[str, list[dict[str, object]]]:
    """Heading → its changes, sorted."""
    changes = _changes(w)
    reverted = {change["title"] for change in changes if change["type"] == "revert"}
    kept = [c for c in changes if c["type"] in GROUPS.values() and c["id"] not in reverted]
    kept.sort(key=lambda change: (change["area"], change["issue"]))
    groups = {"Breaking": [c for c in kept if c["breaking"]]}
    return groups | {name: [c for c in kept if c["type"] == t and not c["breaking"]] for name, t in GROUPS.items()}


def _listed(w: Workspace) -> list[dict[str, object]]:
    return [change for group in _groups(w).values() for change in group]


def _version(w: Workspace) -> str:
    latest = next(line.split()[1] for line in w.given_lines("CHANGELOG.md") if line.startswith("## "))
    first, second, third = map(int, latest.split("."))
    groups = _groups(w)
    if groups["Breaking"]:
        return f"{first + 1}.0.0"
    return f"{first}.{second + 1}.0" if groups["Features"] else f"{first}.{second}.{third + 1}"


def _entry(change: dict[str, object]) -> str:
    return f"- {change['area']}: {change['title']} (#{change['issue']})"


def _section(w: Workspace) -> list[str]:
    names = w.given_json("authors.json")
    lines = [f"## {_version(w)} - {DATE}", ""]
    for name, changes in _groups(w).items():
        if changes:
            lines += [f"### {name}", "", *map(_entry, changes), ""]
    thanks = ", ".join(sorted({names[change["author"]] for change in _listed(w)}))
    return [*lines, "### Thanks", "", thanks, ""]


def _new_lines(w: Workspace) -> list[str]:
    """What was added to the changelog.

    Raises:
        ValueError: the title or the older sections are not as they were, or nothing was added.
    """
    old, new = w.given_lines("CHANGELOG.md"), w.lines("CHANGELOG.md")
    if new[:2] != old[:2] or new[-len(old) + 2 :] != old[2:] or len(new) <= len(old):
        raise ValueError("title or older sections changed")
    return new[2 : len(new) - len(old) + 2]


def older_sections_kept(w: Workspace) -> bool:
    """Something was added in the right place, and the rest is as it was."""
    return _new_lines(w)[0].startswith("## ")


def version(w: Workspace) -> bool:
    """Version and date."""
    value, wanted = w.json("release.json"), (_version(w), DATE)
    return _new_lines(w)[0] == "## {} - {}".format(*wanted) and (value["version"], value["date"]) == wanted


def entries(w: Workspace) -> float:
    """Share of the entries that stand under their heading, and no other does."""
    groups, heading, right, seen = _groups(w), "", 0, 0
    for line in _new_lines(w):
        if line.startswith("### "):
            heading = line[4:]
        elif line.startswith("- "):
            seen += 1
            right += line in map(_entry, groups.get(heading, []))
    return right / max(seen, len(_listed(w)))


def section_exact(w: Workspace) -> bool:
    """The whole section, to the letter."""
    return _new_lines(w) == _section(w)


def counts(w: Workspace) -> bool:
    """Numbers and skipped ids."""
    value, listed = w.json("release.json"), _listed(w)
    skipped = sorted({change["id"] for change in _changes(w)} - {change["id"] for change in listed})  # type: ignore[type-var]
    wanted = [len(_groups(w)["Breaking"]), len(listed), skipped]
    return [value["breaking"], value["entries"], value["skipped"]] == wanted


def tweet(w: Workspace) -> bool:
    """One short line with version and features."""
    lines = w.lines("tweet.txt")
    needed = [_version(w), *(str(change["title"]) for change in _groups(w)["Features"])]
    return len(lines) == 1 and len(lines[0]) <= 140 and all(text in lines[0] for text in needed)


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    return w.changed() == {"CHANGELOG.md", "release.json", "tweet.txt"}

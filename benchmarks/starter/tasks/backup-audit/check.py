"""backup-audit: classify, repair and quarantine by SHA-256."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _manifest(w: Workspace) -> dict[str, str]:
    return {row["path"]: row["sha256"] for row in w.given_rows("manifest.csv")}


def _below(w: Workspace, folder: str) -> dict[str, str]:
    """Path below a folder → content, as handed out."""
    return {path.removeprefix(folder): w.given_text(path) for path in w.given_files(folder)}


def _before(w: Workspace) -> dict[str, str]:
    manifest, backup = _manifest(w), _below(w, "backup/")
    state = {path: "stray" for path in backup if path not in manifest}
    for path, digest in manifest.items():
        state[path] = "missing" if path not in backup else "ok" if _digest(backup[path]) == digest else "damaged"
    return dict(sorted(state.items()))


def _repairs(w: Workspace) -> dict[str, str]:
    """Path → the content that repairs it."""
    manifest, mirror = _manifest(w), _below(w, "mirror/")
    broken = [path for path, state in _before(w).items() if state in ("damaged", "missing")]
    return {path: mirror[path] for path in broken if path in mirror and _digest(mirror[path]) == manifest[path]}


def _after(w: Workspace) -> dict[str, str]:
    repaired = _repairs(w)
    return {
        path: "quarantined" if state == "stray" else "ok" if path in repaired else state
        for path, state in _before(w).items()
    }


def _strays(w: Workspace) -> list[str]:
    return [path for path, state in _before(w).items() if state == "stray"]


def classes_before(w: Workspace) -> float:
    """Share of paths classified rightly."""
    seen, wanted = {row["path"]: row["before"] for row in w.rows("audit.csv")}, _before(w)
    return sum(seen.get(path) == state for path, state in wanted.items()) / len(wanted)


def table_exact(w: Workspace) -> bool:
    """Header, order and both classes of every path."""
    after = _after(w)
    wanted = [{"path": path, "before": state, "after": after[path]} for path, state in _before(w).items()]
    return w.header("audit.csv") == ["path", "before", "after"] and w.rows("audit.csv") == wanted


def repaired(w: Workspace) -> float:
    """Share of the files that can be repaired, and are."""
    there, wanted = set(w.files("backup/")), _repairs(w)
    return sum(f"backup/{p}" in there and w.text(f"backup/{p}") == text for p, text in wanted.items()) / len(wanted)


def quarantined(w: Workspace) -> float:
    """Share of stray files that were moved with their content."""
    there, backup = set(w.files()), _below(w, "backup/")
    good = [
        f"backup/{path}" not in there and f"quarantine/{path}" in there and w.text(f"quarantine/{path}") == backup[path]
        for path in _strays(w)
    ]
    return sum(good) / len(good)


def lost(w: Workspace) -> bool:
    """What could not be saved."""
    wanted = [path for path, state in _after(w).items() if state in ("damaged", "missing")]
    return bool(w.json("audit.json")["lost"] == wanted)


def bytes_ok(w: Workspace) -> bool:
    """Total size of what is ok."""
    size = {row["path"]: int(row["bytes"]) for row in w.given_rows("manifest.csv")}
    return bool(w.json("audit.json")["bytes_ok"] == sum(size[p] for p, state in _after(w).items() if state == "ok"))


def nothing_else(w: Workspace) -> bool:
    """Exactly the changes asked for: nothing bad was copied, nothing else touched."""
    wanted = {"audit.csv", "audit.json"} | {f"backup/{path}" for path in _repairs(w)}
    wanted |= {f"{folder}/{path}" for path in _strays(w) for folder in ("backup", "quarantine")}
    return w.changed() == wanted

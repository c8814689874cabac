"""config-migrate: layered INI files become typed JSON."""

from __future__ import annotations

import configparser
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

STAGES = ("production", "staging", "testing")
UNITS = {"duration": {"s": 1, "m": 60, "h": 3600}, "size": {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}}


def _legacy(w: Workspace, name: str) -> dict[str, str]:
    """section.key → text."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(w.given_text(f"legacy/{name}"))
    return {f"{section}.{key}": text for section in parser.sections() for key, text in parser[section].items()}


def _value(text: str, kind: str) -> object:
    """The typed value.

    Raises:
        ValueError, KeyError: the text doesn't fit.
    """
    if kind == "bool":
        return {"yes": True, "no": False}[text]
    if kind == "string":
        return text
    units = UNITS.get(kind, {"": 1})
    match = re.fullmatch(rf"([0-9]+)([{''.join(units)}])" if kind in UNITS else r"([0-9]+)()", text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * units[match[2]]


def _typed(w: Workspace, name: str) -> tuple[dict[str, object], list[dict[str, str]]]:
    """One file's values by new path, and its problems."""
    schema, values, problems = w.given_json("schema.json"), {}, []
    for key, text in sorted(_legacy(w, name).items()):
        try:
            rule = schema[key]
        except KeyError:
            problems.append({"file": name, "key": key, "problem": "unknown"})
            continue
        try:
            values[rule["to"]] = _value(text, rule["type"])
        except (ValueError, KeyError):
            problems.append({"file": name, "key": key, "problem": "invalid"})
    return values, problems


def _flat(w: Workspace, stage: str) -> dict[str, object]:
    return {**_typed(w, "base.ini")[0], **_typed(w, f"{stage}.ini")[0]}


def _nested(flat: dict[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, last = path.split(".")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = value
    return tree


def _same(seen: object, wanted: object) -> bool:
    """Equal, and True is not 1."""
    if isinstance(seen, dict) and isinstance(wanted, dict):
        return seen.keys() == wanted.keys() and all(_same(seen[key], wanted[key]) for key in wanted)
    return type(seen) is type(wanted) and seen == wanted


def _stage(w: Workspace, stage: str) -> bool:
    return _same(w.json(f"config/{stage}.json"), _nested(_flat(w, stage)))


def production(w: Workspace) -> bool:
    """config/production.json."""
    return _stage(w, "production")


def staging(w: Workspace) -> bool:
    """config/staging.json."""
    return _stage(w, "staging")


def testing(w: Workspace) -> bool:
    """config/testing.json."""
    return _stage(w, "testing")


def problems_found(w: Workspace) -> bool:
    """The keys that were left out, in whatever order."""
    rows = sorted(tuple(row.items()) for row in w.rows("migration.csv"))
    return rows == sorted(tuple(row.items()) for row in _problems(w))


def problems_exact(w: Workspace) -> bool:
    """Header and order too."""
    return w.header("migration.csv") == ["file", "key", "problem"] and w.rows("migration.csv") == _problems(w)


def _problems(w: Workspace) -> list[dict[str, str]]:
    rows = [row for name in ("base", *STAGES) for row in _typed(w, f"{name}.ini")[1]]
    return sorted(rows, key=lambda row: (row["file"], row["key"]))


def diff(w: Workspace) -> bool:
    """config/diff.json."""
    flat = {stage: _flat(w, stage) for stage in STAGES}
    paths = {path for values in flat.values() for path in values}
    table = {path: {stage: flat[stage][path] for stage in STAGES if path in flat[stage]} for path in paths}
    wanted = {p: row for p, row in table.items() if len(row) < len(STAGES) or len(set(map(repr, row.values()))) > 1}
    return _same(w.json("config/diff.json"), wanted)


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    return w.changed() == {"migration.csv", *(f"config/{name}.json" for name in (*STAGES, "diff"))}

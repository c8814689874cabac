"""shift-roster: any roster that keeps all rules; each part needs a complete one."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace


def _roster(w: Workspace) -> dict[tuple[str, str], list[str]]:
    """(date, shift) → people.

    Raises:
        ValueError: it doesn't staff exactly the given shifts, as many as each needs, with known and different people.
    """
    rows, shifts = w.rows("roster.csv"), w.given_rows("shifts.csv")
    if [(r["date"], r["shift"]) for r in rows] != [(s["date"], s["shift"]) for s in shifts]:
        raise ValueError("other shifts")
    for row, shift in zip(rows, shifts, strict=True):
        names = set(row["people"].split())
        if not len(names) == len(row["people"].split()) == int(shift["needed"]) or not names <= set(_people(w)):
            raise ValueError(f"{row}: needs {shift['needed']} different people")
    return {(row["date"], row["shift"]): row["people"].split() for row in rows}


def _people(w: Workspace) -> dict[str, dict[str, object]]:
    people: dict[str, dict[str, object]] = w.given_json("people.json")
    return people


def _turns(w: Workspace) -> list[tuple[str, str, str]]:
    """(name, date, shift), in the order of time."""
    return [(name, day, shift) for (day, shift), names in _roster(w).items() for name in names]


def _load(w: Workspace) -> dict[str, int]:
    turns = _turns(w)
    return {name: sum(turn[0] == name for turn in turns) for name in _people(w)}


def staffed(w: Workspace) -> bool:
    """Rule 1, and the form of the table."""
    sorted_names = all(names == sorted(names) for names in _roster(w).values())
    return w.header("roster.csv") == ["date", "shift", "people"] and sorted_names


def availability(w: Workspace) -> bool:
    """Rule 2."""
    people = _people(w)
    away = any(day in people[name]["away"] for name, day, _ in _turns(w))  # type: ignore[operator]
    never = any(shift in people[name]["never"] for name, _, shift in _turns(w))  # type: ignore[operator]
    return not away and not never


def rest(w: Workspace) -> bool:
    """Rule 3."""
    turns = _turns(w)
    twice = len({(name, day) for name, day, _ in turns}) < len(turns)
    nights = {(name, date.fromisoformat(day) + timedelta(days=1)) for name, day, shift in turns if shift == "night"}
    tired = any((name, date.fromisoformat(day)) in nights for name, day, shift in turns if shift == "day")
    return not twice and not tired


def limits(w: Workspace) -> bool:
    """Rules 4 and 6."""
    load, people = _load(w), _people(w)
    within = all(load[name] <= person["most"] for name, person in people.items())  # type: ignore[operator]
    return within and max(load.values()) - min(load.values()) <= 3


def leads(w: Workspace) -> bool:
    """Rule 5."""
    people = _people(w)
    return all(any(people[name]["lead"] for name in names) for names in _roster(w).values())


def load_file(w: Workspace) -> bool:
    """load.json agrees with the roster."""
    return bool(w.json("load.json") == _load(w))


def person_files(w: Workspace) -> bool:
    """Everybody's own list agrees with the roster."""
    wanted: dict[str, list[str]] = {}
    for name, day, shift in _turns(w):
        wanted.setdefault(f"by_person/{name}.txt", []).append(f"{day} {shift}")
    return set(w.files("by_person/")) == set(wanted) and all(w.lines(path) == wanted[path] for path in wanted)


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    return w.changed() == {"roster.csv", "load.json", *(f"by_person/{turn[0]}.txt" for turn in _turns(w))}

"""project-schedule: earliest dates, slack and missed deadlines on a working calendar."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

SCHEDULE = "schedule/schedule.csv"


class _Plan:
    """The plan in working-day numbers: task → first and last day, counted from the start day as 0."""

    def __init__(self, w: Workspace) -> None:
        self.tasks = {row["id"]: row for row in w.given_rows("plan/tasks.csv")}
        self.days = _working_days(w.given_json("plan/calendar.json"))
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        for task in self.tasks:
            self._place(task)
        self.slack = {task: self._latest(task) - self.last[task] for task in self.tasks}

    def _place(self, task: str) -> int:
        """The task's last day."""
        if task not in self.last:
            row = self.tasks[task]
            self.first[task] = max((self._place(before) + 1 for before in row["after"].split()), default=0)
            self.last[task] = self.first[task] + int(row["days"]) - 1
        return self.last[task]

    def _latest(self, task: str) -> int:
        """The last day on which it may end without moving the project's end."""
        later = [name for name, row in self.tasks.items() if task in row["after"].split()]
        starts = (self._latest(name) - int(self.tasks[name]["days"]) for name in later)
        return min(starts, default=max(self.last.values()))

    def order(self) -> list[str]:
        return sorted(self.tasks, key=lambda task: (self.first[task], task))

    def end(self, task: str) -> str:
        return self.days[self.last[task]]


def _working_days(calendar: dict[str, object]) -> list[str]:
    start, free = date.fromisoformat(str(calendar["start"])), calendar["free"]
    days = (start + timedelta(days=i) for i in range(200))
    return [day.isoformat() for day in days if day.weekday() < 5 and day.isoformat() not in free]  # type: ignore[operator]


def _share(w: Workspace, field: str, wanted: dict[str, str]) -> float:
    seen = {row["id"]: row[field] for row in w.rows(SCHEDULE)}
    return sum(seen.get(task) == value for task, value in wanted.items()) / len(wanted)


def starts(w: Workspace) -> float:
    """Share of tasks with the right first day."""
    plan = _Plan(w)
    return _share(w, "start", {task: plan.days[day] for task, day in plan.first.items()})


def ends(w: Workspace) -> float:
    """Share of tasks with the right last day."""
    plan = _Plan(w)
    return _share(w, "end", {task: plan.end(task) for task in plan.tasks})


def slacks(w: Workspace) -> float:
    """Share of tasks with the right slack."""
    return _share(w, "slack", {task: str(slack) for task, slack in _Plan(w).slack.items()})


def order(w: Workspace) -> bool:
    """Header, and rows by start and id."""
    header = ["id", "start", "end", "slack"]
    return w.header(SCHEDULE) == header and [row["id"] for row in w.rows(SCHEDULE)] == _Plan(w).order()


def critical(w: Workspace) -> bool:
    """The tasks without slack."""
    plan = _Plan(w)
    return w.lines("schedule/critical.txt") == [task for task in plan.order() if plan.slack[task] == 0]


def late(w: Workspace) -> bool:
    """Missed deadlines, in working days."""
    plan, rows = _Plan(w), []
    for row in w.given_rows("plan/deadlines.csv"):
        end, latest = plan.end(row["id"]), row["latest"]
        if end > latest:
            days = sum(latest < day <= end for day in plan.days)
            rows.append({"id": row["id"], "end": end, "latest": latest, "days": str(days)})
    rows.sort(key=lambda row: row["id"])
    return w.header("schedule/late.csv") == ["id", "end", "latest", "days"] and w.rows("schedule/late.csv") == rows


def load(w: Workspace) -> bool:
    """Days per person, and the last day."""
    plan = _Plan(w)
    rows = plan.tasks.values()
    days = {who: sum(int(row["days"]) for row in rows if row["who"] == who) for who in {row["who"] for row in rows}}
    return bool(w.json("schedule/load.json") == {**days, "finish": plan.days[max(plan.last.values())]})


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    return w.changed() == {f"schedule/{name}" for name in ("schedule.csv", "critical.txt", "late.csv", "load.json")}

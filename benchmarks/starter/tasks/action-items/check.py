"""action-items: open jobs from minutes, on working days."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

ACTION = re.compile(r"^- (~~)?ACTION @(\w+) by (\S+): (.+?)(?:~~)?$", re.M)


def _jobs(w: Workspace) -> list[dict[str, str]]:
    """Every job: handle, text, source, asked, due, state."""
    minutes = {path: w.given_text(path) for path in w.given_files("minutes/")}
    done = {pair for text in minutes.values() for pair in re.findall(r"^- DONE @(\w+): (.+)$", text, re.M)}
    jobs = []
    for path, text in minutes.items():
        for struck, handle, asked, job in ACTION.findall(text):
            state = "dropped" if struck else "done" if (handle, job) in done else "open"
            source, due = path.removeprefix("minutes/"), _working_day(w, asked)
            jobs.append({"handle": handle, "text": job, "source": source, "asked": asked, "due": due, "state": state})
    return jobs


def _working_day(w: Workspace, day: str) -> str:
    at = date.fromisoformat(day)
    while at.weekday() >= 5 or at.isoformat() in w.given_lines("holidays.txt"):
        at += timedelta(days=1)
    return at.isoformat()


def _open_rows(w: Workspace) -> list[dict[str, str]]:
    people = w.given_json("people.json")
    rows = [
        {"due": job["due"], **people[job["handle"]], "text": job["text"], "source": job["source"]}
        for job in _jobs(w)
        if job["state"] == "open"
    ]
    return sorted(rows, key=lambda row: (row["due"], row["name"]))


def _mail(w: Workspace) -> dict[str, list[str]]:
    people, jobs = w.given_json("people.json"), [job for job in _jobs(w) if job["state"] == "open"]
    jobs.sort(key=lambda job: job["due"])
    return {
        f"mail/{handle}.txt": [f"To: {people[handle]['email']}", ""]
        + [f"- {job['due']}: {job['text']}" for job in jobs if job["handle"] == handle]
        for handle in {job["handle"] for job in jobs}
    }


def jobs_found(w: Workspace) -> bool:
    """The open jobs, with person and source, in whatever order."""
    keys = ("name", "email", "text", "source")
    rows = sorted(tuple(row[key] for key in keys) for row in w.rows("actions.csv"))
    return rows == sorted(tuple(row[key] for key in keys) for row in _open_rows(w))


def due_dates(w: Workspace) -> float:
    """Share of open jobs with the right due date."""
    due = {row["text"]: row["due"] for row in w.rows("actions.csv")}
    wanted = _open_rows(w)
    return sum(due.get(row["text"]) == row["due"] for row in wanted) / len(wanted)


def table_exact(w: Workspace) -> bool:
    """Header, rows and order."""
    header = ["due", "name", "email", "text", "source"]
    return w.header("actions.csv") == header and w.rows("actions.csv") == _open_rows(w)


def mail_content(w: Workspace) -> float:
    """Share of the mails that are exactly right."""
    wanted, there = _mail(w), set(w.files("mail/"))
    return sum(path in there and w.lines(path) == lines for path, lines in wanted.items()) / len(wanted)


def mail_only_where_open(w: Workspace) -> bool:
    """No mail to anyone else."""
    return set(w.files("mail/")) == set(_mail(w))


def overview(w: Workspace) -> bool:
    """The four numbers."""
    jobs = _jobs(w)
    counts = {state: sum(job["state"] == state for job in jobs) for state in ("open", "done", "dropped")}
    moved = sum(job["state"] == "open" and job["due"] != job["asked"] for job in jobs)
    return bool(w.json("overview.json") == {**counts, "moved": moved})


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    return w.changed() == {"actions.csv", "overview.json", *_mail(w)}

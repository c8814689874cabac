"""inbox-triage: queues, due dates, moved messages and a summary."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

DAYS = {"urgent": 0, "billing": 3, "general": 5, "internal": 7}


def _expected(w: Workspace) -> dict[str, dict[str, str]]:
    """File name → its row."""
    return {path.removeprefix("inbox/"): _row(w.given_text(path), path) for path in w.given_files("inbox/")}


def _row(message: str, path: str) -> dict[str, str]:
    head, body = message.split("\n\n", 1)
    fields = dict(line.split(": ", 1) for line in head.split("\n"))
    sender = re.findall(r"<(.+)>", fields["From"])[0]
    queue = _queue(sender, fields["Subject"].lower(), body)
    due = date.fromisoformat(fields["Date"]) + timedelta(days=DAYS[queue])
    return {"file": path.removeprefix("inbox/"), "sender": sender, "queue": queue, "due": due.isoformat()}


def _queue(sender: str, subject: str, body: str) -> str:
    if sender.endswith("@ourteam.example"):
        return "internal"
    if re.search(r"\b(invoice|payment)\b", subject):
        return "billing"
    if re.search(r"\boutage\b", subject) or re.search(r"^severity: 1", body, re.I | re.M):
        return "urgent"
    return "general"


def _share(w: Workspace, field: str) -> float:
    wanted, rows = _expected(w), {row["file"]: row for row in w.rows("triage.csv")}
    return sum(file in rows and rows[file][field] == row[field] for file, row in wanted.items()) / len(wanted)


def table(w: Workspace) -> bool:
    """The header, and one row per message with its sender."""
    rows = sorted(w.rows("triage.csv"), key=lambda row: row["file"])
    senders = [(row["file"], row["sender"]) for row in _expected(w).values()]
    return w.header("triage.csv") == ["file", "sender", "queue", "due"] and senders == [
        (row["file"], row["sender"]) for row in rows
    ]


def queues(w: Workspace) -> float:
    """Share of messages in the right queue."""
    return _share(w, "queue")


def due_dates(w: Workspace) -> float:
    """Share of messages with the right due date."""
    return _share(w, "due")


def order(w: Workspace) -> bool:
    """By due date, then file."""
    wanted = sorted(_expected(w).values(), key=lambda row: (row["due"], row["file"]))
    return [row["file"] for row in w.rows("triage.csv")] == [row["file"] for row in wanted]


def moved(w: Workspace) -> float:
    """Share of messages that lie in their queue's folder, unchanged, and no longer in the inbox."""
    there, wanted = set(w.files()), _expected(w)
    good = 0
    for file, row in wanted.items():
        new = f"sorted/{row['queue']}/{file}"
        good += new in there and f"inbox/{file}" not in there and w.text(new) == w.given_text(f"inbox/{file}")
    return good / len(wanted)


def summary(w: Workspace) -> bool:
    """Counts per queue and the earliest due date."""
    rows = _expected(w).values()
    counts = {queue: sum(row["queue"] == queue for row in rows) for queue in DAYS}
    return bool(w.json("summary.json") == {"counts": counts, "earliest_due": min(row["due"] for row in rows)})


def nothing_else(w: Workspace) -> bool:
    """Exactly the changes asked for."""
    wanted = {"triage.csv", "summary.json", *w.given_files("inbox/")}
    wanted |= {f"sorted/{row['queue']}/{file}" for file, row in _expected(w).items()}
    return w.changed() == wanted

"""log-incident: failed requests of two servers in UTC."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

LINE = re.compile(r"^(\S+) client=(\S+) \w+ (\S+) status=(\d+) ms=(\d+)$")
FIELDS = ["utc", "server", "client", "endpoint", "status", "ms"]


def _requests(w: Workspace) -> list[dict[str, str]]:
    """Every request of both servers, in time."""
    rows = []
    for path in w.given_files("logs/"):
        if path.endswith(".log"):
            server = path.removeprefix("logs/").removesuffix(".log")
            found = [match.groups() for line in w.given_lines(path) if (match := LINE.match(line))]
            rows += [dict(zip(FIELDS, (_utc(time), server, *rest), strict=True)) for time, *rest in found]
    return sorted(rows, key=lambda row: (row["utc"], row["server"]))


def _utc(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _failed(w: Workspace) -> list[dict[str, str]]:
    return [row for row in _requests(w) if row["status"].startswith("5")]


def _by_team(w: Workspace) -> dict[str, int]:
    owners = {row["endpoint"]: row["team"] for row in w.given_rows("owners.csv")}
    return {team: sum(owners[row["endpoint"]] == team for row in _failed(w)) for team in owners.values()}


def _summary(w: Workspace, *keys: str) -> list[object]:
    value = w.json("incident/summary.json")
    return [value[key] for key in keys]


def failures_found(w: Workspace) -> bool:
    """The failed requests, in whatever order and time zone."""
    keys = FIELDS[1:]
    rows = sorted([row[key] for key in keys] for row in w.rows("incident/timeline.csv"))
    return rows == sorted([row[key] for key in keys] for row in _failed(w))


def timeline_exact(w: Workspace) -> bool:
    """UTC times, header and order."""
    return w.header("incident/timeline.csv") == FIELDS and w.rows("incident/timeline.csv") == _failed(w)


def counts(w: Workspace) -> bool:
    """Failed and all requests."""
    return _summary(w, "failed", "total") == [len(_failed(w)), len(_requests(w))]


def span(w: Workspace) -> bool:
    """First and last failure."""
    return _summary(w, "first", "last") == [_failed(w)[0]["utc"], _failed(w)[-1]["utc"]]


def teams(w: Workspace) -> bool:
    """Failures by team."""
    return _summary(w, "by_team") == [_by_team(w)]


def client_and_median(w: Workspace) -> bool:
    """The worst client and the median duration."""
    clients = Counter(row["client"] for row in _failed(w))
    worst = min(clients, key=lambda client: (-clients[client], client))
    median = statistics.median(int(row["ms"]) for row in _failed(w))
    return _summary(w, "worst_client", "median_ms") == [worst, median]


def notify(w: Workspace) -> bool:
    """Whom to tell, in order."""
    teams = sorted(_by_team(w).items(), key=lambda item: (-item[1], item[0]))
    return w.lines("incident/notify.txt") == [team for team, failed in teams if failed]


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    return w.changed() == {f"incident/{name}" for name in ("timeline.csv", "summary.json", "notify.txt")}

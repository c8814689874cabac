"""sensor-quality: bad readings, gaps and means of three sensors."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

SENSORS = ("boiler", "cellar", "roof")
START, SLOTS = datetime(2025, 6, 1), 48


def _readings(w: Workspace, sensor: str) -> list[dict[str, str]]:
    """The sensor's rows, each with its class."""
    rows = w.given_rows(f"readings/{sensor}.csv")
    limits = w.given_json("limits.json")[sensor]
    classed = []
    for value, run in groupby(rows, key=lambda row: row["celsius"]):
        group = list(run)
        classed += [{**row, "class": _class(value, len(group), limits)} for row in group]
    return classed


def _class(value: str, run: int, limits: dict[str, float]) -> str:
    try:
        number = float(value)
    except ValueError:
        return "invalid"
    if not math.isfinite(number):
        return "invalid"
    if not limits["min"] <= number <= limits["max"]:
        return "range"
    return "stuck" if run >= 3 else "good"


def _flags(w: Workspace) -> list[dict[str, str]]:
    return [{"sensor": s, **row} for s in SENSORS for row in _readings(w, s) if row["class"] != "good"]


def _gaps(w: Workspace, sensor: str) -> list[int]:
    """Lengths of the runs of missing slots."""
    seen = {row["time"] for row in _readings(w, sensor)}
    slots = [(START + timedelta(minutes=30 * i)).strftime("%Y-%m-%d %H:%M") for i in range(SLOTS)]
    return [len(list(run)) for there, run in groupby(slots, key=lambda slot: slot in seen) if not there]


def _quality(w: Workspace, key: str, wanted: dict[str, float]) -> bool:
    value = w.json("quality.json")
    return set(value) == set(SENSORS) and all(abs(value[s][key] - wanted[s]) < 0.0051 for s in SENSORS)


def flags_found(w: Workspace) -> float:
    """Share of the bad readings that were found, less the share of good ones flagged."""
    seen = {(row["sensor"], row["time"]) for row in w.rows("flags.csv")}
    wanted = {(row["sensor"], row["time"]) for row in _flags(w)}
    return max(0.0, len(seen & wanted) - len(seen - wanted)) / len(wanted)


def flags_exact(w: Workspace) -> bool:
    """Header, classes and order."""
    return w.header("flags.csv") == ["sensor", "time", "celsius", "class"] and w.rows("flags.csv") == _flags(w)


def clean(w: Workspace) -> float:
    """Share of the sensors whose good rows are kept exactly."""
    good = 0
    for sensor in SENSORS:
        kept = [f"{row['time']},{row['celsius']}" for row in _readings(w, sensor) if row["class"] == "good"]
        path = f"clean/{sensor}.csv"
        good += path in w.files("clean/") and w.lines(path) == ["time,celsius", *kept]
    return good / len(SENSORS)


def counts(w: Workspace) -> bool:
    """Rows and good rows."""
    rows = {sensor: _readings(w, sensor) for sensor in SENSORS}
    good = {sensor: float(sum(row["class"] == "good" for row in rows[sensor])) for sensor in SENSORS}
    return _quality(w, "rows", {s: float(len(rows[s])) for s in SENSORS}) and _quality(w, "good", good)


def gaps(w: Workspace) -> bool:
    """Missing slots, and the longest run of them."""
    total = {sensor: float(sum(_gaps(w, sensor))) for sensor in SENSORS}
    longest = {sensor: 30.0 * max(_gaps(w, sensor), default=0) for sensor in SENSORS}
    return _quality(w, "gaps", total) and _quality(w, "longest_gap_minutes", longest)


def means(w: Workspace) -> bool:
    """Means of the good values."""
    good = {s: [float(row["celsius"]) for row in _readings(w, s) if row["class"] == "good"] for s in SENSORS}
    return _quality(w, "mean", {sensor: sum(values) / len(values) for sensor, values in good.items()})


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    return w.changed() == {"flags.csv", "quality.json", *(f"clean/{sensor}.csv" for sensor in SENSORS)}

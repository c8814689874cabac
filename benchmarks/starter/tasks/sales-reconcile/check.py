"""sales-reconcile: a quarter's sales by region, in euros."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

REGIONS = "report/regions.csv"


def _orders(w: Workspace) -> dict[str, dict[str, str]]:
    return {row["order"]: row for row in w.given_rows("data/orders.csv")}


def _reason(w: Workspace, refund: dict[str, str]) -> str:
    """Why a refund is ignored; "" for a valid one."""
    order = _orders(w).get(refund["order"])
    if order is None:
        return "unknown"
    if order["status"] != "paid":
        return "not paid"
    return "too large" if float(refund["amount"]) > float(order["amount"]) else ""


def _euros(w: Workspace) -> list[tuple[str, str, float, float]]:
    """(region, month, gross, refunded) of every paid order."""
    rates, refunds = w.given_json("data/rates.json"), Counter[str]()
    for row in w.given_rows("data/refunds.csv"):
        refunds[row["order"]] += 0 if _reason(w, row) else float(row["amount"])  # type: ignore[assignment]
    found = []
    for order in _orders(w).values():
        if order["status"] == "paid":
            month = order["date"][:7]
            rate = rates[order["currency"]][month]
            found.append((order["region"], month, float(order["amount"]) * rate, refunds[order["order"]] * rate))
    return found


def _totals(w: Workspace) -> dict[str, tuple[int, float, float]]:
    """Region → (orders, gross, refunded)."""
    euros = _euros(w)
    return {
        region: (
            sum(row[0] == region for row in euros),
            sum(row[2] for row in euros if row[0] == region),
            sum(row[3] for row in euros if row[0] == region),
        )
        for region in {row[0] for row in euros}
    }


def _near(text: str, value: float) -> bool:
    """Two decimals, at most one unit of rounding away."""
    return len(text.partition(".")[2]) == 2 and abs(float(text) - value) < 0.0101


def order_counts(w: Workspace) -> bool:
    """Counted orders per region: no duplicates, only paid ones."""
    seen = {row["region"]: int(row["orders"]) for row in w.rows(REGIONS)}
    return seen == {region: total[0] for region, total in _totals(w).items()}


def gross(w: Workspace) -> bool:
    """Euros before refunds."""
    seen, totals = {row["region"]: row["gross"] for row in w.rows(REGIONS)}, _totals(w)
    return seen.keys() == totals.keys() and all(_near(seen[region], total[1]) for region, total in totals.items())


def net(w: Workspace) -> bool:
    """Valid refunds, and what is left."""
    seen, totals = {row["region"]: row for row in w.rows(REGIONS)}, _totals(w)
    return seen.keys() == totals.keys() and all(
        _near(seen[region]["refunded"], total[2]) and _near(seen[region]["net"], total[1] - total[2])
        for region, total in totals.items()
    )


def ranking(w: Workspace) -> bool:
    """Header, and regions by net."""
    wanted = sorted(_totals(w).items(), key=lambda item: item[1][2] - item[1][1])
    header = ["region", "orders", "gross", "refunded", "net"]
    return w.header(REGIONS) == header and [row["region"] for row in w.rows(REGIONS)] == [name for name, _ in wanted]


def monthly(w: Workspace) -> bool:
    """Net by month."""
    wanted: dict[str, float] = {}
    for _, month, before, back in _euros(w):
        wanted[month] = wanted.get(month, 0.0) + before - back
    seen = w.json("report/monthly.json")
    return seen.keys() == wanted.keys() and all(abs(seen[month] - value) < 0.0101 for month, value in wanted.items())


def rejected(w: Workspace) -> bool:
    """The ignored refunds and why."""
    rows = [{**row, "reason": _reason(w, row)} for row in w.given_rows("data/refunds.csv")]
    return w.rows("report/rejected.csv") == [row for row in rows if row["reason"]]


def duplicates(w: Workspace) -> bool:
    """Orders exported twice."""
    times = Counter(row["order"] for row in w.given_rows("data/orders.csv"))
    return w.lines("report/duplicates.txt") == sorted(order for order, n in times.items() if n > 1)


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    names = ("regions.csv", "monthly.json", "rejected.csv", "duplicates.txt")
    return w.changed() == {f"report/{name}" for name in names}

"""repair-pipeline: right bills from a repaired program, corrections, and a new patch version."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixharness.benchmarks.starter.grader.checklib import Workspace

OLD, NEW = "1.4.2", "1.4.3"
REPAIRED = ("tier_cost", "customer_units", "discount")
"""What no right program can leave as it is; meter errors and rounding can be put right in several places."""


def _units(w: Workspace) -> dict[str, list[int]]:
    """Customer → units of the rows as they stand."""
    units: dict[str, list[int]] = {}
    for row in w.given_rows("usage.csv"):
        units.setdefault(row["customer"], []).append(int(row["units"]))
    return units


def _bill(w: Workspace) -> dict[str, float]:
    """By SPEC.md."""
    prices, bill = w.given_json("prices.json"), {}
    for customer, rows in _units(w).items():
        counted = [units for units in rows if units >= 0]
        left, below, total = sum(counted), 0, 0.0
        for tier in prices["tiers"]:
            part = left if tier["up_to"] is None else min(left, tier["up_to"] - below)
            total, left, below = total + part * tier["price"], left - part, tier["up_to"] or 0
        bill[customer] = max(total * (0.9 if len(counted) >= 3 else 1.0), prices["minimum"])
    return bill


def _old_bill(w: Workspace) -> dict[str, float]:
    """What the program as handed out computes."""
    prices, bill = w.given_json("prices.json"), {}
    for customer, rows in _units(w).items():
        tiers = prices["tiers"]
        price = next(t["price"] for t in tiers if t["up_to"] is None or rows[-1] < t["up_to"])
        total = rows[-1] * price * (0.9 if len(rows) > 3 else 1.0)
        bill[customer] = float(round(max(total, prices["minimum"])))
    return bill


def _module(w: Workspace) -> ast.Module:
    return ast.parse(w.text("billing/pipeline.py"))


def _functions(module: ast.Module) -> dict[str, str]:
    """Name → what it does, apart from layout."""
    return {node.name: ast.dump(node) for node in module.body if isinstance(node, ast.FunctionDef)}


def bills(w: Workspace) -> float:
    """Share of customers with the right amount, of exactly these customers."""
    seen, wanted = w.json("out/bill.json"), _bill(w)
    right = sum(abs(seen[customer] - amount) < 0.00501 for customer, amount in wanted.items())
    return right / len(wanted) if seen.keys() == wanted.keys() else 0.0


def program_changed(w: Workspace) -> bool:
    """The program still has its functions and its start, the faulty ones differ, and the bills are right."""
    old = _functions(ast.parse(w.given_text("billing/pipeline.py")))
    new = _functions(_module(w))
    kept = old.keys() <= new.keys() and "__main__" in w.text("billing/pipeline.py")
    return kept and all(new[name] != old[name] for name in REPAIRED) and bills(w) == 1.0


def corrections(w: Workspace) -> bool:
    """Customers whose amount changed, old and new."""
    keys = ("old", "new", "difference")
    rows = {row["customer"]: [float(row[key]) for key in keys] for row in w.rows("out/corrections.csv")}
    new, old = _bill(w), _old_bill(w)
    wanted = {c: [old[c], new[c], new[c] - old[c]] for c in new if abs(new[c] - old[c]) >= 0.005}
    return rows.keys() == wanted.keys() and all(
        abs(seen - value) < 0.0101 for c in wanted for seen, value in zip(rows[c], wanted[c], strict=True)
    )


def corrections_form(w: Workspace) -> bool:
    """Header, two decimals, order."""
    rows = w.rows("out/corrections.csv")
    two = all(re.fullmatch(r"-?\d+\.\d\d", row[key]) for row in rows for key in ("old", "new", "difference"))
    by = [float(row["difference"]) for row in rows]
    header = ["customer", "old", "new", "difference"]
    return w.header("out/corrections.csv") == header and two and len(by) > 1 and by == sorted(by)


def versions(w: Workspace) -> bool:
    """Three places raised, the mention in the description kept."""
    package = w.given_text("billing/__init__.py").replace(OLD, NEW)
    project = w.given_text("pyproject.toml").replace(f'version = "{OLD}"', f'version = "{NEW}"')
    constants: dict[str, Any] = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in _module(w).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "VERSION"
    }
    files = w.text("billing/__init__.py") == package and w.text("pyproject.toml") == project
    return files and constants == {"VERSION": NEW}


def changes(w: Workspace) -> bool:
    """The new section stands above the old one and names the repaired functions."""
    old = w.given_text("CHANGES.md")
    title, rest = old.split("\n\n", 1)
    match = re.fullmatch(rf"{title}\n\n## {re.escape(NEW)}\n\n((?:- .+\n)+)\n{re.escape(rest)}", w.text("CHANGES.md"))
    if match is None:
        return False
    items = match[1].splitlines()
    return all(sum(f"`{name}`" in item for item in items) >= 1 for name in REPAIRED)


def nothing_else(w: Workspace) -> bool:
    """Exactly the files asked for."""
    edited = {"billing/pipeline.py", "billing/__init__.py", "pyproject.toml", "CHANGES.md"}
    return w.changed() == {"out/bill.json", "out/corrections.csv", *edited}

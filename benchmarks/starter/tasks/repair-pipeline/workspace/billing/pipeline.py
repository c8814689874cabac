"""Builds out/bill.json from usage.csv and prices.json: `python3 billing/pipeline.py`."""

import csv
import json
import os
from typing import Any

VERSION = "1.4.2"


def read_usage(path: str) -> list[dict[str, str]]:
    with open(path) as file:
        return list(csv.DictReader(file))


def tier_cost(units: int, tiers: list[dict[str, Any]]) -> float:
    """Units are charged tier by tier: the first `up_to` units at the first price, and so on."""
    cost = 0.0
    for tier in tiers:
        if tier["up_to"] is None or units < tier["up_to"]:
            return float(units * tier["price"])
    return cost


def customer_units(rows: list[dict[str, str]]) -> dict[str, int]:
    units: dict[str, int] = {}
    for row in rows:
        units[row["customer"]] = int(row["units"])
    return units


def discount(total: float, count: int) -> float:
    if count > 3:
        return total * 0.9
    return total


def build(rows: list[dict[str, str]], prices: dict[str, Any]) -> dict[str, float]:
    bill = {}
    units = customer_units(rows)
    for customer in units:
        months = len([row for row in rows if row["customer"] == customer])
        total = discount(tier_cost(units[customer], prices["tiers"]), months)
        bill[customer] = round(max(total, prices["minimum"]))
    return bill


if __name__ == "__main__":
    with open("prices.json") as file:
        prices = json.load(file)
    os.makedirs("out", exist_ok=True)
    with open("out/bill.json", "w") as file:
        json.dump(build(read_usage("usage.csv"), prices), file, indent=2)

"""Builds out/bill.json from usage.csv and prices.json: `python3 billing/pipeline.py`."""

import csv
import json
import os

VERSION = "1.4.2"


def read_usage(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def tier_cost(units, tiers):
    """Units are charged tier by tier: the first `up_to` units at the first price, and so on."""
    cost = 0.0
    for tier in tiers:
        if tier["up_to"] is None or units < tier["up_to"]:
            return units * tier["price"]
    return cost


def customer_units(rows):
    units = {}
    for row in rows:
        units[row["customer"]] = int(row["units"])
    return units


def discount(total, count):
    if count > 3:
        return total * 0.9
    return total


def build(rows, prices):
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

python3 billing/pipeline.py
OLD=$(mktemp)
export OLD
mv out/bill.json "$OLD"
python3 - <<'END'
import re
path = "billing/pipeline.py"
text = open(path).read()
text = text.replace("        return list(csv.DictReader(file))", """\
        return [row for row in csv.DictReader(file) if int(row["units"]) >= 0]""")
text = text.replace("""\
    cost = 0.0
    for tier in tiers:
        if tier["up_to"] is None or units < tier["up_to"]:
            return float(units * tier["price"])
    return cost
""", """\
    cost, below = 0.0, 0
    for tier in tiers:
        top = units if tier["up_to"] is None else min(units, tier["up_to"])
        if top > below:
            cost += (top - below) * tier["price"]
            below = top
    return cost
""")
text = text.replace("""units[row["customer"]] = int(row["units"])""",
                    """units[row["customer"]] = units.get(row["customer"], 0) + int(row["units"])""")
text = text.replace("if count > 3:", "if count >= 3:")
text = text.replace("""round(max(total, prices["minimum"]))""", """round(max(total, prices["minimum"]), 2)""")
open(path, "w").write(text.replace("1.4.2", "1.4.3"))
for path in ("billing/__init__.py", "pyproject.toml"):
    text = open(path).read()
    open(path, "w").write(re.sub(r"(version_* = .)1\.4\.2", r"\g<1>1.4.3", text))
text = open("CHANGES.md").read()
items = {
    "read_usage": "skips meter errors", "tier_cost": "charges tier by tier", "customer_units": "adds up all rows",
    "discount": "starts at three months", "build": "rounds to two decimals",
}
new = "## 1.4.3\n\n" + "".join(f"- `{name}` {what}.\n" for name, what in items.items()) + "\n"
open("CHANGES.md", "w").write(text.replace("## 1.4.2", new + "## 1.4.2"))
END
python3 billing/pipeline.py
python3 - <<'END'
import csv, json, os
old, new = json.load(open(os.environ["OLD"])), json.load(open("out/bill.json"))
rows = [[name, old[name], new[name], new[name] - old[name]] for name in new if abs(new[name] - old[name]) > 0.004]
rows.sort(key=lambda row: row[3])
with open("out/corrections.csv", "w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["customer", "old", "new", "difference"])
    out.writerows([name, *(f"{number:.2f}" for number in numbers)] for name, *numbers in rows)
END
rm -r "$OLD" billing/__pycache__ 2>/dev/null || true

mkdir -p report
python3 - <<'END'
import collections, csv, json
rows = list(csv.DictReader(open("data/orders.csv")))
rates = json.load(open("data/rates.json"))
orders = {row["order"]: row for row in rows}
times = collections.Counter(row["order"] for row in rows)
back, rejected = collections.defaultdict(float), []
for refund in csv.DictReader(open("data/refunds.csv")):
    order = orders.get(refund["order"])
    reason = None
    if order is None:
        reason = "unknown"
    elif order["status"] != "paid":
        reason = "not paid"
    elif float(refund["amount"]) > float(order["amount"]):
        reason = "too large"
    if reason:
        rejected.append([refund["order"], refund["amount"], reason])
    else:
        back[refund["order"]] += float(refund["amount"])
regions, months = {}, collections.defaultdict(float)
for order in orders.values():
    if order["status"] != "paid":
        continue
    month = order["date"][:7]
    rate = rates[order["currency"]][month]
    gross, refunded = float(order["amount"]) * rate, back[order["order"]] * rate
    line = regions.setdefault(order["region"], [0, 0.0, 0.0])
    line[0] += 1
    line[1] += gross
    line[2] += refunded
    months[month] += gross - refunded
def write(name, table):
    with open(f"report/{name}", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(table)
ranked = sorted(regions.items(), key=lambda item: item[1][2] - item[1][1])
lines = [[name, n, f"{g:.2f}", f"{r:.2f}", f"{g - r:.2f}"] for name, (n, g, r) in ranked]
write("regions.csv", [["region", "orders", "gross", "refunded", "net"], *lines])
write("rejected.csv", [["order", "amount", "reason"], *rejected])
json.dump({month: round(value, 2) for month, value in sorted(months.items())}, open("report/monthly.json", "w"))
open("report/duplicates.txt", "w").write("".join(f"{order}\n" for order in sorted(times) if times[order] > 1))
END

python3 - <<'END'
import csv, datetime, json, os, re
days = {"urgent": 0, "billing": 3, "general": 5, "internal": 7}
rows = []
for name in sorted(os.listdir("inbox")):
    head, body = open(f"inbox/{name}").read().split("\n\n", 1)
    sender = re.search(r"<(.*?)>", head).group(1)
    subject = re.search(r"Subject: (.*)", head).group(1).lower()
    day = datetime.date.fromisoformat(re.search(r"Date: (.*)", head).group(1))
    if sender.endswith("@ourteam.example"):
        queue = "internal"
    elif "invoice" in subject or "payment" in subject:
        queue = "billing"
    elif "outage" in subject or any(line.lower().startswith("severity: 1") for line in body.split("\n")):
        queue = "urgent"
    else:
        queue = "general"
    rows.append([name, sender, queue, str(day + datetime.timedelta(days[queue]))])
    os.makedirs(f"sorted/{queue}", exist_ok=True)
    os.rename(f"inbox/{name}", f"sorted/{queue}/{name}")
rows.sort(key=lambda row: (row[3], row[0]))
with open("triage.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([["file", "sender", "queue", "due"], *rows])
counts = {queue: sum(row[2] == queue for row in rows) for queue in days}
json.dump({"counts": counts, "earliest_due": rows[0][3]}, open("summary.json", "w"))
END

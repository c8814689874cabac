mkdir -p schedule
python3 - <<'END'
import csv, datetime, json
tasks = list(csv.DictReader(open("plan/tasks.csv")))
calendar = json.load(open("plan/calendar.json"))
days, at = [], datetime.date.fromisoformat(calendar["start"])
while len(days) < 120:
    if at.weekday() < 5 and str(at) not in calendar["free"]:
        days.append(str(at))
    at += datetime.timedelta(1)
first, last, late = {}, {}, {}
while len(last) < len(tasks):
    for task in tasks:
        before = task["after"].split()
        if all(name in last for name in before):
            first[task["id"]] = max([last[name] + 1 for name in before] + [0])
            last[task["id"]] = first[task["id"]] + int(task["days"]) - 1
finish = max(last.values())
while len(late) < len(tasks):
    for task in tasks:
        after = [other for other in tasks if task["id"] in other["after"].split()]
        if all(other["id"] in late for other in after):
            late[task["id"]] = min([late[other["id"]] - int(other["days"]) for other in after] + [finish])
order = sorted(first, key=lambda name: (first[name], name))
def write(name, table):
    with open(f"schedule/{name}", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(table)
rows = [[n, days[first[n]], days[last[n]], late[n] - last[n]] for n in order]
write("schedule.csv", [["id", "start", "end", "slack"], *rows])
open("schedule/critical.txt", "w").write("".join(f"{n}\n" for n in order if late[n] == last[n]))
missed = [["id", "end", "latest", "days"]]
for row in sorted(csv.DictReader(open("plan/deadlines.csv")), key=lambda row: row["id"]):
    end = days[last[row["id"]]]
    if end > row["latest"]:
        missed.append([row["id"], end, row["latest"], len([day for day in days if row["latest"] < day <= end])])
write("late.csv", missed)
load = {}
for task in tasks:
    load[task["who"]] = load.get(task["who"], 0) + int(task["days"])
json.dump({**load, "finish": days[finish]}, open("schedule/load.json", "w"))
END

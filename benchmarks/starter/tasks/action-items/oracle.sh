mkdir -p mail
python3 - <<'END'
import csv, datetime, glob, json, os, re
people, holidays = json.load(open("people.json")), open("holidays.txt").read().split()
texts = {os.path.basename(path): open(path).read() for path in sorted(glob.glob("minutes/*.md"))}
closed = re.findall(r"^- DONE @(\w+): (.*)$", "\n".join(texts.values()), re.M)
rows, counts = [], {"open": 0, "done": 0, "dropped": 0, "moved": 0}
for source, text in texts.items():
    for line in text.split("\n"):
        if line.startswith("- ~~ACTION"):
            counts["dropped"] += 1
        found = re.match(r"- ACTION @(\w+) by (\S+): (.*)", line)
        if not found:
            continue
        handle, day, job = found.groups()
        if (handle, job) in closed:
            counts["done"] += 1
            continue
        due = datetime.date.fromisoformat(day)
        while due.isoweekday() > 5 or str(due) in holidays:
            due += datetime.timedelta(1)
        counts["open"] += 1
        counts["moved"] += str(due) != day
        rows.append([str(due), people[handle]["name"], people[handle]["email"], job, source, handle])
rows.sort(key=lambda row: row[:2])
with open("actions.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([["due", "name", "email", "text", "source"], *(r[:5] for r in rows)])
for handle in {row[5] for row in rows}:
    mine = [row for row in rows if row[5] == handle]
    with open(f"mail/{handle}.txt", "w") as file:
        file.write(f"To: {mine[0][2]}\n\n" + "".join(f"- {row[0]}: {row[3]}\n" for row in mine))
json.dump(counts, open("overview.json", "w"))
END

mkdir -p incident
python3 - <<'END'
import collections, csv, datetime, glob, json, os, re, statistics
owners = {row["endpoint"]: row["team"] for row in csv.DictReader(open("owners.csv"))}
rows, total = [], 0
for path in glob.glob("logs/*.log"):
    for line in open(path):
        found = re.match(r"(\S+) client=(\S+) \S+ (\S+) status=(\d+) ms=(\d+)", line)
        if not found:
            continue
        total += 1
        when, client, endpoint, status, ms = found.groups()
        if 500 <= int(status) <= 599:
            utc = datetime.datetime.fromisoformat(when).astimezone(datetime.timezone.utc)
            server = os.path.basename(path)[:-4]
            rows.append([utc.strftime("%Y-%m-%dT%H:%M:%SZ"), server, client, endpoint, status, ms])
rows.sort()
with open("incident/timeline.csv", "w", newline="") as file:
    head = ["utc", "server", "client", "endpoint", "status", "ms"]
    csv.writer(file, lineterminator="\n").writerows([head, *rows])
team = {name: 0 for name in owners.values()}
for row in rows:
    team[owners[row[3]]] += 1
clients = collections.Counter(row[2] for row in rows)
summary = {
    "failed": len(rows), "total": total, "first": rows[0][0], "last": rows[-1][0], "by_team": team,
    "worst_client": sorted(clients, key=lambda c: (-clients[c], c))[0],
    "median_ms": statistics.median(int(row[5]) for row in rows),
}
json.dump(summary, open("incident/summary.json", "w"))
names = sorted((name for name in team if team[name]), key=lambda name: (-team[name], name))
open("incident/notify.txt", "w").write("".join(name + "\n" for name in names))
END

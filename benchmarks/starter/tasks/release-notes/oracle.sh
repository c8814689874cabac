python3 - <<'END'
import json
changes = [json.loads(line) for line in open("changes.jsonl")]
names = json.load(open("authors.json"))
gone = [change["title"] for change in changes if change["type"] == "revert"]
kept = [c for c in changes if c["type"] in ("feat", "fix", "perf") and c["id"] not in gone]
kept.sort(key=lambda c: (c["area"], c["issue"]))
groups = {
    "Breaking": [c for c in kept if c["breaking"]],
    "Features": [c for c in kept if c["type"] == "feat" and not c["breaking"]],
    "Fixes": [c for c in kept if c["type"] == "fix" and not c["breaking"]],
    "Performance": [c for c in kept if c["type"] == "perf" and not c["breaking"]],
}
version, date = "3.0.0", "2025-02-14"
section = f"## {version} - {date}\n\n"
for name, group in groups.items():
    if group:
        section += f"### {name}\n\n" + "".join(f"- {c['area']}: {c['title']} (#{c['issue']})\n" for c in group) + "\n"
section += "### Thanks\n\n" + ", ".join(sorted({names[c["author"]] for c in kept})) + "\n\n"
title, rest = open("CHANGELOG.md").read().split("\n\n", 1)
open("CHANGELOG.md", "w").write(f"{title}\n\n{section}{rest}")
skipped = sorted({c["id"] for c in changes} - {c["id"] for c in kept})
about = {"version": version, "date": date, "breaking": len(groups["Breaking"]), "entries": len(kept), "skipped": skipped}
json.dump(about, open("release.json", "w"))
open("tweet.txt", "w").write(f"{version} is out: " + "; ".join(c["title"] for c in groups["Features"]) + "\n")
END

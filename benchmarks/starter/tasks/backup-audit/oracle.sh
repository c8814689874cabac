python3 - <<'END'
import csv, hashlib, json, os, shutil
def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.isfile(path) else None
manifest = {row["path"]: row for row in csv.DictReader(open("manifest.csv"))}
present = [os.path.relpath(os.path.join(base, name), "backup") for base, _, names in os.walk("backup") for name in names]
rows = []
for path in sorted({*manifest, *present}):
    target, good = f"backup/{path}", manifest.get(path, {}).get("sha256")
    if good is None:
        before, after = "stray", "quarantined"
        os.makedirs(os.path.dirname(f"quarantine/{path}"), exist_ok=True)
        os.rename(target, f"quarantine/{path}")
    else:
        seen = digest(target)
        before = after = "missing" if seen is None else "ok" if seen == good else "damaged"
        if before != "ok" and digest(f"mirror/{path}") == good:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(f"mirror/{path}", target)
            after = "ok"
    rows.append([path, before, after])
with open("audit.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([["path", "before", "after"], *rows])
lost = [row[0] for row in rows if row[2] in ("missing", "damaged")]
size = sum(int(manifest[row[0]]["bytes"]) for row in rows if row[2] == "ok")
json.dump({"lost": lost, "bytes_ok": size}, open("audit.json", "w"))
END

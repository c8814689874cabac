mkdir -p clean
python3 - <<'END'
import csv, datetime, json, math, os
limits, flags, quality = json.load(open("limits.json")), [["sensor", "time", "celsius", "class"]], {}
for sensor in sorted(limits):
    rows = [(row["time"], row["celsius"]) for row in csv.DictReader(open(f"readings/{sensor}.csv"))]
    good = []
    for i, (time, text) in enumerate(rows):
        same = [text == rows[j][1] if 0 <= j < len(rows) else False for j in (i - 2, i - 1, i + 1, i + 2)]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            kind = "invalid"
        elif value < limits[sensor]["min"] or value > limits[sensor]["max"]:
            kind = "range"
        elif (same[0] and same[1]) or (same[1] and same[2]) or (same[2] and same[3]):
            kind = "stuck"
        else:
            kind = "good"
            good.append((time, text))
        if kind != "good":
            flags.append([sensor, time, text, kind])
    with open(f"clean/{sensor}.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("time", "celsius"), *good])
    gaps = run = longest = 0
    for slot in range(48):
        at = datetime.datetime(2025, 6, 1) + datetime.timedelta(minutes=30 * slot)
        run = 0 if at.strftime("%Y-%m-%d %H:%M") in dict(rows) else run + 1
        gaps += run > 0
        longest = max(longest, run)
    mean = round(sum(float(text) for _, text in good) / len(good), 2)
    entry = {"rows": len(rows), "good": len(good), "gaps": gaps, "mean": mean, "longest_gap_minutes": 30 * longest}
    quality[sensor] = entry
with open("flags.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows(flags)
json.dump(quality, open("quality.json", "w"))
END

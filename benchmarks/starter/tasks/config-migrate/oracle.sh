mkdir -p config
python3 - <<'END'
import configparser, csv, json, re
schema, stages, problems, typed = json.load(open("schema.json")), ["production", "staging", "testing"], [], {}
scale = {"s": 1, "m": 60, "h": 3600, "K": 1024, "M": 1024**2, "G": 1024**3}
forms = {"int": "[0-9]+", "duration": "[0-9]+[smh]", "size": "[0-9]+[KMG]", "bool": "yes|no", "string": ".*"}
for name in ["base", *stages]:
    parser, typed[name] = configparser.ConfigParser(), {}
    parser.read(f"legacy/{name}.ini")
    for section in parser.sections():
        for key, text in parser.items(section):
            rule = schema.get(f"{section}.{key}")
            if rule is None or not re.fullmatch(forms[rule["type"]], text):
                problems.append([f"{name}.ini", f"{section}.{key}", "unknown" if rule is None else "invalid"])
            elif rule["type"] == "bool":
                typed[name][rule["to"]] = text == "yes"
            elif rule["type"] == "string":
                typed[name][rule["to"]] = text
            else:
                digits, unit = re.match("([0-9]+)(.*)", text).groups()
                typed[name][rule["to"]] = int(digits) * scale.get(unit, 1)
flat = {stage: {**typed["base"], **typed[stage]} for stage in stages}
for stage in stages:
    tree = {}
    for path, value in flat[stage].items():
        *folders, last = path.split(".")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = value
    json.dump(tree, open(f"config/{stage}.json", "w"), indent=2)
diff = {}
for path in {path for values in flat.values() for path in values}:
    row = {stage: flat[stage][path] for stage in stages if path in flat[stage]}
    if len(row) < 3 or any(value != row["production"] for value in row.values()):
        diff[path] = row
json.dump(diff, open("config/diff.json", "w"), indent=2)
with open("migration.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([["file", "key", "problem"], *sorted(problems)])
END

python3 - <<'END'
import csv, glob, json, os, re
terms = {row["term"]: row["meaning"] for row in csv.DictReader(open("glossary.csv"))}
links, used = {}, {term: [] for term in terms}
for path in sorted(glob.glob("articles/*.md")):
    seen, out = [], []
    pattern = re.compile(r"\b(" + "|".join(sorted(terms, key=len, reverse=True)) + r")\b", re.I)
    def link(found):
        term = found.group(0).lower()
        if term in seen:
            return found.group(0)
        seen.append(term)
        return f"[{found.group(0)}](../glossary.md#{term.replace(' ', '-')})"
    for line in open(path):
        out.append(line if line.startswith(("#", "    ")) else pattern.sub(link, line))
    open(path, "w").write("".join(out))
    links[os.path.basename(path)] = seen
    for term in seen:
        used[term].append(os.path.basename(path))
with open("glossary.md", "w") as file:
    file.write("# Glossary\n")
    for term in sorted(terms):
        meaning = terms[term][0].upper() + terms[term][1:]
        file.write(f"\n## {term}\n\n{meaning}.\n\nUsed in: {', '.join(used[term]) or 'nothing yet'}\n")
json.dump(links, open("links.json", "w"))
END

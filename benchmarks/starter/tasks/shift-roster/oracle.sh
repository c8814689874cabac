mkdir -p by_person
python3 - <<'END'
import csv, datetime, itertools, json
people, shifts = json.load(open("people.json")), list(csv.DictReader(open("shifts.csv")))
def before(day):
    return str(datetime.date.fromisoformat(day) - datetime.timedelta(1))
def fits(name, shift, done):
    person, mine = people[name], [(d, s) for d, s, who in done if name in who]
    if shift["date"] in person["away"] or shift["shift"] in person["never"] or len(mine) >= person["most"]:
        return False
    tired = shift["shift"] == "day" and (before(shift["date"]), "night") in mine
    return not tired and shift["date"] not in [d for d, _ in mine]
def count(done):
    return {name: sum(name in who for _, _, who in done) for name in sorted(people)}
def solve(done):
    if len(done) == len(shifts):
        load = count(done).values()
        return done if max(load) - min(load) <= 3 else None
    shift, load = shifts[len(done)], count(done)
    free = sorted((name for name in people if fits(name, shift, done)), key=lambda name: (load[name], name))
    for team in itertools.combinations(free, int(shift["needed"])):
        if any(people[name]["lead"] for name in team):
            found = solve([*done, (shift["date"], shift["shift"], team)])
            if found:
                return found
    return None
roster = solve([])
with open("roster.csv", "w", newline="") as file:
    rows = [[day, shift, " ".join(sorted(team))] for day, shift, team in roster]
    csv.writer(file, lineterminator="\n").writerows([["date", "shift", "people"], *rows])
json.dump(count(roster), open("load.json", "w"))
for name in people:
    mine = [f"{day} {shift}\n" for day, shift, team in roster if name in team]
    if mine:
        open(f"by_person/{name}.txt", "w").write("".join(mine))
END

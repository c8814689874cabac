"""Agent-like English text, made from a seed: enough to fit a tokenizer when no real prompts are at hand."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

_PROSE = """
You are an interactive agent that helps users with software engineering, research and office tasks in a workspace.
Use the tools below and the instructions here to help the user. Read a file before you change it. Keep answers short.
When you are done, reply with a short summary of what you changed and where.
Do not ask questions; make a reasonable choice.
The current working directory is the workspace.
Relative paths are resolved against it. Today's date is in the environment.
IMPORTANT: never create files unless they are needed for the task;
always prefer editing an existing file to making a new one.
Executes a given shell command and returns its standard output,
standard error and exit code after an optional timeout.
Reads a file from the local filesystem.
Results are returned with line numbers starting at one. Long lines are truncated.
Performs exact string replacement in a file.
The edit fails if the old string is not unique or was not found in the file.
Writes the given content to a file, replacing whatever was there before. Parent directories are created automatically.
Searches file contents with a regular expression and returns the matching lines with their paths and line numbers.
Fetches a page from a URL and returns its text. Lists the entries of a directory, sorted by modification time.
Optional timeout in milliseconds. The absolute path to the file to read. The number of lines to read, from an offset.
A clear, concise description of what this command does.
The text to replace it with must be different from the old one.
Merge the two lists, drop duplicate rows, sort by date and write the result as a CSV file with a header line.
Rename the report, convert the table to JSON, count the words, extract every email address, fix the failing test.
Summarise the meeting notes into three bullet points with owners and deadlines; save them as a Markdown document.
Compute the total, the average and the median of each column, rounded to two decimals, and save the answer.
Find the configuration key that is wrong, correct it, and validate that the script runs without errors afterwards.
No such file or directory. Permission denied.
Command not found. File has been updated successfully. Tool ran without output.
"""
_SHELL = """
ls -la {d}
cat {d}/{f}
cat {f}
mv {f} {g}
cp {f} {d}/{g}
mkdir -p {d} && cp {f} {d}/{g}
rm {d}/{f}
grep -rn "{w}" {d}
grep -c {w} {f}
head -n {n} {f}
tail -n {n} {f} | sort | uniq -c
wc -l {f}
wc -w < {f}
sort -t, -k{n} {f} > {g}
sed -i 's/{w}/{v}/g' {f}
awk -F, '{{sum += $3}} END {{print sum}}' {f}
find . -name "*.txt" -type f | sort > {g}
python3 -c "import json; print(json.load(open('{f}'))['{w}'])"
python3 {w}.py --input {f} --output {g}
echo "{w}: {n}" >> {f}
printf '%s\\n' "{w}" > {f}
tr 'a-z' 'A-Z' < {f} > {g}
cut -d, -f{n} {f} | paste -sd+ | bc
diff {f} {g}
"""
_WORD_LIST = """
report notes summary invoice budget sales orders total data config settings readme todo plan draft final result
output input answer table users names emails log errors events tasks meeting agenda contacts inventory prices items
amount status title owner date count value key name path file line text word number list first last north south east
west alpha beta gamma delta red green blue apple pear lemon river stone cloud maple cedar amber copper silver paper
window garden
"""
_WORDS = _WORD_LIST.split()
_DIRS = ("docs", "data", "src", "out", "archive", "reports", "notes", "config", "tmp", "backup", "inbox", "results")
_SUFFIXES = ("txt", "csv", "json", "md", "py", "yaml", "log", "toml", "html")


def corpus(seed: int = 0, documents: int = 3000) -> Iterator[str]:
    """Short documents: prose, shell commands, tool calls, tool schemas, listings, tables and code."""
    rng = random.Random(seed)
    makers = (_prose, _shell, _call, _schema, _listing, _table, _code)
    for i in range(documents):
        yield makers[i % len(makers)](rng)


def _name(rng: random.Random) -> str:
    stem = rng.choice(["{a}", "{a}-{b}", "{a}_{b}", "{a}_{n}", "{A}{n}"])
    a, b = rng.choice(_WORDS), rng.choice(_WORDS)
    return f"{stem.format(a=a, b=b, A=a.title(), n=rng.randint(1, 2030))}.{rng.choice(_SUFFIXES)}"


def _prose(rng: random.Random) -> str:
    lines = _PROSE.strip().splitlines()
    return "\n".join(rng.sample(lines, 3)) + f"\n\n# {rng.choice(_WORDS).title()}\n\n- {_name(rng)}\n- `{_name(rng)}`\n"


def _command(rng: random.Random) -> str:
    return rng.choice(_SHELL.strip().splitlines()).format(
        d=rng.choice(_DIRS),
        f=_name(rng),
        g=_name(rng),
        w=rng.choice(_WORDS),
        v=rng.choice(_WORDS),
        n=rng.randint(1, 99),
    )


def _shell(rng: random.Random) -> str:
    return "\n".join(f"$ {_command(rng)}" for _ in range(3))


def _call(rng: random.Random) -> str:
    path = f"/workspace/{rng.choice(_DIRS)}/{_name(rng)}"
    calls: list[tuple[str, dict[str, object]]] = [
        ("Bash", {"command": _command(rng), "description": rng.choice(_PROSE.strip().splitlines())[:40]}),
        ("bash", {"command": _command(rng)}),
        ("Read", {"file_path": path, "limit": rng.randint(1, 200)}),
        ("read", {"path": _name(rng)}),
        ("write", {"path": _name(rng), "content": _table(rng)}),
        ("Write", {"file_path": path, "content": _prose(rng)}),
        ("Edit", {"file_path": path, "old_string": rng.choice(_WORDS), "new_string": rng.choice(_WORDS)}),
    ]
    name, arguments = rng.choice(calls)
    return f'\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n'


def _schema(rng: random.Random) -> str:
    lines = _PROSE.strip().splitlines()
    properties = {
        rng.choice(["file_path", "command", "pattern", "content", "limit", "timeout", "url", "query"]): {
            "description": rng.choice(lines),
            "type": rng.choice(["string", "number", "integer", "boolean", "array"]),
        }
        for _ in range(3)
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    tool = {"name": rng.choice(_WORDS), "description": rng.choice(lines), "parameters": parameters}
    return json.dumps({"type": "function", "function": tool})


def _listing(rng: random.Random) -> str:
    rows = [
        f"-rw-r--r-- 1 agent agent {rng.randint(0, 99999):5d} {rng.choice(['Jan', 'Feb', 'Mar', 'Nov'])} "
        f"{rng.randint(1, 28):2d} {rng.randint(0, 23):02d}:{rng.randint(0, 59):02d} {_name(rng)}"
        for _ in range(5)
    ]
    return f"total {rng.randint(4, 96)}\n" + "\n".join(rows)


def _table(rng: random.Random) -> str:
    rows = [
        f"{rng.choice(_WORDS)},20{rng.randint(20, 29)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d},"
        f"{rng.randint(1, 999)}.{rng.randint(0, 99):02d}"
        for _ in range(4)
    ]
    return "name,date,amount\n" + "\n".join(rows) + "\n"


def _code(rng: random.Random) -> str:
    name, other = rng.choice(_WORDS), rng.choice(_WORDS)
    return (
        f"import csv\nimport json\n\n\ndef {name}_{other}(path: str) -> int:\n"
        f'    """{rng.choice(_PROSE.splitlines())}"""\n'
        f"    with open(path) as file:\n        rows = list(csv.DictReader(file))\n    for row in rows:\n"
        f'        if row["{name}"] == {rng.randint(0, 99)}:\n            print(f"{{row}} {other}")\n'
        "    return len(rows)\n"
    )

"""Starter's templated half: one shell line's worth of work, made fresh by a seed.

Six skills, one per ClawGym category, each with two train and two held-out tasks. An instance draws its names,
contents, directories and wording from `random.Random(f"{task id}:{seed}")`, so it is the same on every machine. Every
job ends with a note that goes into a journal: there is a careful way to do that, and careless ones
(`Demonstrations.command`), which is what a small policy can learn to tell apart by reward.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from mixharness.benchmarks.starter import wordings, words
from mixharness.benchmarks.task import Grader, Task

Record = Literal["append", "skip", "overwrite"]
RECORDS: tuple[Record, ...] = ("append", "skip", "overwrite")
GRADER_ARGV = ("python3", "-I", "/grader/main.py", "/workspace")
WORKDIR = "/workspace"


@dataclass(frozen=True)
class Skill:
    """A kind of job.

    Attributes:
        action: its shell command, over {src}, {dst}, {arg}.
        lines: how many lines src has, least and most; None where the job reads no file.
        line_words: how many words a line of src has, least and most.
    """

    name: str
    category: str
    action: str
    lines: tuple[int, int] | None
    line_words: tuple[int, int] = (1, 1)


SKILLS: Mapping[str, Skill] = {
    skill.name: skill
    for skill in (
        Skill("rename", "Productivity", "mv {src} {dst}", (1, 3), (1, 3)),
        Skill("collect", "Systems", "grep {arg} {src} > {dst}", (5, 8), (2, 3)),
        Skill("count", "Analysis", "wc -l < {src} > {dst}", (3, 9), (1, 2)),
        Skill("excerpt", "Content", "head -n {arg} {src} > {dst}", (6, 9), (1, 3)),
        Skill("sort", "Planning", "sort {src} > {dst}", (4, 7)),
        Skill("version", "Software", "echo {arg} > {dst}", None),
    )
}


@dataclass(frozen=True)
class Instance:
    """What a seed made of a task. Paths are relative to the workspace; `src` is "" where the job reads no file."""

    skill: Skill
    prompt: str
    src: str
    dst: str
    journal: str
    note: str
    arg: str
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class Demonstrations:
    """The ways to do one instance's job in one shell command, careful and careless."""

    instance: Instance

    def command(self, place: bool = True, record: Record = "append") -> str:
        """A shell command.

        Args:
            place: False writes to /tmp rather than where it was asked to.
            record: "append" adds the note to the journal, "skip" leaves it out, "overwrite" loses the old lines.
        """
        made, dst = self.instance, self.instance.dst if place else "/tmp/" + self.instance.dst.rsplit("/", 1)[1]
        job = made.skill.action.format(src=made.src, dst=dst, arg=made.arg)
        arrow = {"append": ">>", "overwrite": ">"}
        return job if record == "skip" else f"{job} && echo '{made.note}' {arrow[record]} {made.journal}"

    @property
    def oracle(self) -> str:
        """The careful one."""
        return self.command()


def demonstrations(task: Task) -> Demonstrations:
    """The demonstrations of a templated task, from its id and seed.

    Raises:
        KeyError: the task isn't a templated one.
    """
    return Demonstrations(make_instance(task.id, task.seed))


def task_ids() -> Sequence[str]:
    """The 24 templated tasks, train and held-out."""
    return tuple(wordings.TASKS)


def load(task_id: str, seed: int | None) -> Task:
    """One instance as a task; seed None is the canonical one."""
    made, split = make_instance(task_id, seed), wordings.TASKS[task_id].split
    return Task(
        id=task_id,
        prompts=(made.prompt,),
        files=made.files,
        grader=Grader(argv=GRADER_ARGV, files=_grader_files(made), timeout_s=30.0),
        category=made.skill.category,
        workdir=WORKDIR,
        timeout_s=120.0,
        oracle=Demonstrations(made).oracle,
        seed=seed,
        split=split,
        tags=frozenset({"templated", made.skill.name}),
    )


def make_instance(task_id: str, seed: int | None, pool: Sequence[str] | None = None) -> Instance:
    """Draws everything that a seed decides; names come from `pool`, by default the one of the task's split."""
    task = wordings.TASKS[task_id]
    skill = SKILLS[task.skill]
    rng = random.Random(f"{task_id}:{'canonical' if seed is None else seed}")
    pool = pool or (words.TRAIN if task.split == "train" else words.HELD_OUT)
    names = rng.sample(pool, 8)
    folders = rng.sample(task.folders, 3)
    src, dst, journal = (f"{folder}/{name}.txt" for folder, name in zip(folders, names, strict=False))
    note = " ".join(names[3 : 3 + rng.randint(2, 3)])
    arg = _argument(rng, skill, word=names[6])
    files = _files(rng, pool, skill, arg, (src, dst, journal), neighbour=f"{names[7]}.txt")
    job, record = rng.choice(task.jobs), rng.choice(task.records)
    prompt = (job + record).format(src=src, dst=dst, arg=arg, note=note, journal=journal)
    return Instance(skill, prompt, src if skill.lines else "", dst, journal, note, arg, files)


def _argument(rng: random.Random, skill: Skill, word: str) -> str:
    """What the job needs besides paths: a word to look for, a number of lines, a version."""
    match skill.name:
        case "collect":
            return word
        case "excerpt":
            return str(rng.randint(2, 5))
        case "version":
            return _version(rng, major=(1, 9))
        case _:
            return ""


def _version(rng: random.Random, major: tuple[int, int]) -> str:
    return f"{rng.randint(*major)}.{rng.randint(0, 9)}.{rng.randint(0, 9)}"


def _files(
    rng: random.Random, pool: Sequence[str], skill: Skill, arg: str, paths: tuple[str, str, str], neighbour: str
) -> dict[str, bytes]:
    """The workspace: src, the journal, and a neighbour in dst's directory, so that it exists."""
    src, dst, journal = paths
    filler = [word for word in pool if not (skill.name == "collect" and arg in word)]
    content = {f"{dst.rsplit('/', 1)[0]}/{neighbour}": _lines(rng, filler, (1, 3), (1, 2))}
    content[journal] = _lines(rng, filler, (1, 3), (2, 3))
    if skill.lines is None:
        content[dst] = [_version(rng, major=(0, 0))]
    else:
        content[src] = _source(rng, filler, skill, arg)
    return {path: "".join(f"{line}\n" for line in lines).encode() for path, lines in sorted(content.items())}


def _source(rng: random.Random, filler: Sequence[str], skill: Skill, arg: str) -> list[str]:
    """The lines of src: for "collect" some that hold the word, for "sort" never in order already."""
    assert skill.lines is not None
    lines = _lines(rng, filler, skill.lines, skill.line_words)
    if skill.name == "collect":
        for i in rng.sample(range(len(lines)), rng.randint(2, 3)):
            others = lines[i].split()
            lines[i] = " ".join([*others[:1], arg, *others[1:]]) if rng.random() < 0.5 else f"{arg} {lines[i]}"
    if skill.name == "sort" and lines == sorted(lines):
        lines.reverse()
    return lines


def _lines(rng: random.Random, pool: Sequence[str], count: tuple[int, int], width: tuple[int, int]) -> list[str]:
    """Lines of words; no word twice."""
    widths = [rng.randint(*width) for _ in range(rng.randint(*count))]
    drawn = iter(rng.sample(pool, sum(widths)))
    return [" ".join(next(drawn) for _ in range(n)) for n in widths]


def _grader_files(made: Instance) -> dict[str, bytes]:
    """The grader's programs, the instance's parameters, and the workspace as it was handed out."""
    spec = {"skill": made.skill.name, "src": made.src, "dst": made.dst, "journal": made.journal}
    spec |= {"note": made.note, "arg": made.arg}
    given = {f"given/{path}": data for path, data in made.files.items()}
    return {"check.py": _CHECK, **PROGRAMS, **given, "spec.json": json.dumps(spec).encode()}


_FOLDER = resources.files("mixharness.benchmarks.starter.grader")
PROGRAMS: Mapping[str, bytes] = {name: _FOLDER.joinpath(name).read_bytes() for name in ("main.py", "checklib.py")}
"""What every Starter grader starts from."""
_CHECK = _FOLDER.joinpath("templated.py").read_bytes()

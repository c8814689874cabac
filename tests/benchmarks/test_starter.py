"""Starter's promises: split, pools, fresh instances, prompts that a tiny policy can do, folders that are complete."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixharness.benchmarks import get_benchmark
from mixharness.benchmarks.starter import handmade, templated, wordings, words
from mixharness.benchmarks.starter.templated import demonstrations
from mixharness.benchmarks.task import Task
from mixharness.errors import UnknownName

CATEGORIES = {"Productivity", "Systems", "Analysis", "Content", "Planning", "Software"}
STARTER = get_benchmark("Starter")
TEMPLATED, HANDMADE = templated.task_ids(), handmade.task_ids()
SPLITS = ("train", "held_out")
SEEDS = st.integers(0, 2**31) | st.none()


def instruction_words(split: str) -> set[str]:
    """Every word of a split's wordings, without the blanks to fill in."""
    texts = [text for task in wordings.TASKS.values() if task.split == split for text in (*task.jobs, *task.records)]
    return {word for text in texts for word in re.findall(r"[a-z]+", re.sub(r"{\w+}", "", text).lower())}


def test_both_halves_cover_every_category_and_split() -> None:
    tasks = [STARTER.load(task_id) for task_id in STARTER.task_ids()]
    counts = Counter((next(iter({"templated", "handmade"} & task.tags)), task.category, task.split) for task in tasks)
    assert counts == {
        **{("templated", category, split): 2 for category in CATEGORIES for split in SPLITS},
        **{("handmade", category, split): 1 for category in CATEGORIES for split in SPLITS},
    }


def test_the_pools_are_disjoint_and_plain() -> None:
    assert len(set(words.TRAIN)) == len(words.TRAIN) == len(set(words.HELD_OUT)) == len(words.HELD_OUT) == 150
    assert not set(words.TRAIN) & set(words.HELD_OUT)
    assert all(re.fullmatch("[a-z]{3,7}", word) for word in words.TRAIN + words.HELD_OUT)
    folders = {folder for task in wordings.TASKS.values() for folder in task.folders}
    assert not (folders | instruction_words("train")) & {*words.TRAIN, *words.HELD_OUT}


def test_held_out_tasks_use_only_words_that_train_tasks_teach() -> None:
    assert instruction_words("held_out") <= instruction_words("train")
    folders = {split: {f for t in wordings.TASKS.values() if t.split == split for f in t.folders} for split in SPLITS}
    assert folders["held_out"] <= folders["train"]


def test_no_two_tasks_share_a_wording_and_its_folders() -> None:
    tasks = wordings.TASKS.values()
    assert len({(task.skill, task.folders) for task in tasks}) == len(tasks)
    jobs = Counter(job for task in tasks for job in task.jobs)
    assert max(jobs.values()) == 1


@settings(max_examples=60, deadline=None)
@given(task_id=st.sampled_from(TEMPLATED), seed=SEEDS)
def test_an_instance_is_well_formed(task_id: str, seed: int | None) -> None:
    task, made = STARTER.load(task_id, seed), templated.make_instance(task_id, seed)
    prompt = task.prompts[0]
    assert len(prompt.split()) <= 35
    assert "{" not in prompt and prompt[0].isupper() and prompt.endswith(".")
    for text in filter(None, (made.src, made.dst, made.journal, f"'{made.note}'", made.arg)):
        assert text in prompt
    assert 2 <= len(made.note.split()) <= 3
    assert 1 <= len(task.files[made.journal].splitlines()) <= 3
    assert (made.src in task.files) == (made.skill.lines is not None)
    folder = made.dst.split("/")[0]
    assert any(path.startswith(f"{folder}/") for path in task.files)
    assert not any("/" not in path for path in task.files)
    pool = words.TRAIN if task.split == "train" else words.HELD_OUT
    names = [part for path in {*task.files, made.dst} for part in re.findall(r"/(\w+)\.txt", path)]
    assert set(names) <= set(pool)
    if made.skill.name != "version":
        assert set(" ".join(data.decode() for data in task.files.values()).split()) <= set(pool)


@settings(max_examples=60, deadline=None)
@given(task_id=st.sampled_from([i for i in TEMPLATED if i.startswith("collect")]), seed=SEEDS)
def test_collecting_lines_is_the_same_by_word_and_by_substring(task_id: str, seed: int | None) -> None:
    made = templated.make_instance(task_id, seed)
    lines = made.files[made.src].decode().splitlines()
    held = [line for line in lines if made.arg in line.split()]
    assert held == [line for line in lines if made.arg in line]
    assert 0 < len(held) < len(lines)


def test_a_seed_gives_a_fresh_instance_and_the_same_one_each_time() -> None:
    for task_id in TEMPLATED:
        tasks = [STARTER.load(task_id, seed) for seed in (None, 0, 1, 2, 3)]
        assert len({task.prompts for task in tasks}) == 5
        assert [task.seed for task in tasks] == [None, 0, 1, 2, 3]
        assert tasks[1] == STARTER.load(task_id, 0)


def test_instances_stay_the_same_across_versions() -> None:
    """Seeds are recorded with results, so what they mean is pinned here."""
    pinned = (
        "Put the lines of team/fiddle.txt in order and write them to lists/embe"
        "r.txt. Then write 'cabbage ferry hill' at the end of log/engine.txt."
    )
    assert STARTER.load("sort-agenda", 7).prompts == (pinned,)


def test_handmade_tasks_ignore_the_seed() -> None:
    assert STARTER.load("inbox-triage", 5) == STARTER.load("inbox-triage")


def test_demonstrations_are_the_careful_command_and_its_careless_variants() -> None:
    task = STARTER.load("sort-agenda", 1)
    demos, made = demonstrations(task), templated.make_instance("sort-agenda", 1)
    elsewhere = "/tmp/" + made.dst.split("/")[1]
    assert demos.command() == task.oracle == f"sort {made.src} > {made.dst} && echo '{made.note}' >> {made.journal}"
    assert demos.command(record="skip") == f"sort {made.src} > {made.dst}"
    assert demos.command(record="overwrite").endswith(f"echo '{made.note}' > {made.journal}")
    assert demos.command(place=False) == f"sort {made.src} > {elsewhere} && echo '{made.note}' >> {made.journal}"


@pytest.mark.parametrize(
    ("task_id", "command"),
    [
        ("rename-memo", "mv {src} {dst}"),
        ("collect-errors", "grep {arg} {src} > {dst}"),
        ("count-votes", "wc -l < {src} > {dst}"),
        ("excerpt-story", "head -n {arg} {src} > {dst}"),
        ("version-app", "echo {arg} > {dst}"),
    ],
)
def test_every_skill_is_one_plain_command(task_id: str, command: str) -> None:
    task, made = STARTER.load(task_id, 3), templated.make_instance(task_id, 3)
    wanted = command.format(src=made.src, dst=made.dst, arg=made.arg)
    assert demonstrations(task).command(record="skip") == wanted


def test_demonstrations_of_another_task() -> None:
    with pytest.raises(KeyError):
        demonstrations(STARTER.load("inbox-triage"))


@pytest.mark.parametrize("task_id", HANDMADE)
def test_a_handmade_task_is_complete(task_id: str) -> None:
    task = STARTER.load(task_id)
    assert 100 <= len(task.prompts[0].split()) <= 250
    assert len(task.files) >= 3
    assert task.oracle
    check = task.grader.files["check.py"].decode()
    assert 4 <= len(re.findall(r"^def [a-z]", check, re.M)) <= 8


@pytest.mark.parametrize("task_id", STARTER.task_ids())
def test_a_grader_has_pristine_copies_of_its_own(task_id: str) -> None:
    task: Task = STARTER.load(task_id)
    given = {p.removeprefix("given/"): data for p, data in task.grader.files.items() if p.startswith("given/")}
    assert given == task.files
    assert {"main.py", "checklib.py", "check.py", "spec.json"} <= set(task.grader.files)
    assert not any("oracle" in path for path in task.grader.files)


def test_the_digest_is_stable_and_covers_the_tasks() -> None:
    assert re.fullmatch("[0-9a-f]{64}", STARTER.digest)
    assert type(STARTER)().digest == STARTER.digest


def test_an_unknown_task_gets_the_nearest_names() -> None:
    with pytest.raises(UnknownName, match="rename-report"):
        STARTER.load("rename-repot")

"""docs/benchmarks.md says what is true: its table is the one its command makes, its numbers are the code's."""

from __future__ import annotations

import re
from pathlib import Path

from mixharness.benchmarks import get_benchmark
from mixharness.benchmarks.clawgym import ClawGymBench
from mixharness.benchmarks.documents import tasks_document, tasks_markdown

DOCS = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()


def test_the_table_is_up_to_date() -> None:
    shown = re.findall(r"<!-- table -->\n\n(.*)\n\n<!-- end of table -->", DOCS, re.S)
    assert shown == [tasks_markdown(tasks_document(get_benchmark("Starter")))]


def test_the_example_benchmark_fits_in_forty_lines() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCS, re.S)
    assert 0 < len([line for line in example.splitlines() if line.strip()]) <= 40


def test_the_floors_are_the_codes() -> None:
    for task_id, floor in ClawGymBench.floor.items():
        assert f"`{task_id}`" in DOCS and f"1/{round(1 / floor)}" in DOCS

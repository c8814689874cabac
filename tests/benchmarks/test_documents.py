"""The documents of `tasks` and `grade`, and their tables."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from mixharness.benchmarks import get_benchmark
from mixharness.benchmarks.clawgym import ClawGymBench
from mixharness.benchmarks.documents import (
    grade_document,
    grade_table,
    grades_document,
    grades_table,
    tasks_document,
    tasks_table,
)
from mixharness.benchmarks.task import Grade

CHECKOUT = Path(__file__).parent / "fixtures" / "ClawGym-Agents"


def rendered(table: RenderableType) -> str:
    console = Console(width=160, file=io.StringIO())
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_starters_tasks() -> None:
    document = tasks_document(get_benchmark("Starter"))
    assert json.loads(json.dumps(document)) == document
    assert document["benchmark"] == "Starter" and len(document["tasks"]) == 36
    row = document["tasks"][0]
    assert row["id"] == "rename-report" and row["category"] == "Productivity" and row["grading"] == "automated"
    assert row["prompt_chars"] > 50 and row["floor"] == 0.0 and row["oracle"]
    assert "rename-report" in rendered(tasks_table(document))


def test_a_floor_that_was_never_measured_is_null() -> None:
    document = tasks_document(ClawGymBench(CHECKOUT))
    assert [row["floor"] for row in document["tasks"]] == [None, None]
    assert [row["category"] for row in document["tasks"]] == ["", ""]
    text = rendered(tasks_table(document))
    assert "categories are empty" in text and "?" in text


def test_one_verdict() -> None:
    document = grade_document(Grade(0.5, {"a": 1.0, "b": 0.0}))
    assert document == {"score": 0.5, "parts": {"a": 1.0, "b": 0.0}, "valid": True, "reason": ""}
    assert "0.500" in rendered(grade_table("t", document))
    bad = grade_document(Grade(None, valid=False, reason="the grader hung"))
    assert bad["score"] is None and not bad["valid"]
    assert "the grader hung" in rendered(grade_table("t", bad))


def test_an_invalid_grade_is_in_no_mean() -> None:
    grades = {"a": Grade(0.5, {"p": 0.5}), "b": Grade(0.0, {"p": 0.0}), "c": Grade(None, valid=False, reason="hung")}
    document = grades_document(get_benchmark("Starter"), grades)
    assert document["mean"] == pytest.approx(0.25)
    assert document["valid"] == 2 and document["invalid"] == ["c"]
    assert document["results"]["c"]["score"] is None
    assert "mean 0.2500 over 2, 1 invalid" in rendered(grades_table(document))


def test_no_valid_grade_has_no_mean() -> None:
    document = grades_document(get_benchmark("Starter"), {"a": Grade(None, valid=False, reason="hung")})
    assert document["mean"] is None
    assert "no valid grade" in rendered(grades_table(document))

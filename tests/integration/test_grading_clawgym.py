"""The floor of the real ClawGym-Bench, whose files only a user can have: not an integration test that CI must run."""

from __future__ import annotations

import os

import pytest

from mixharness.benchmarks import get_benchmark
from mixharness.benchmarks.grading import grade_all

REAL = os.environ.get("MIXHARNESS_CLAWGYMBENCH", "")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not REAL, reason="no ClawGym-Bench checkout; set MIXHARNESS_CLAWGYMBENCH to its folder")
async def test_doing_nothing_scores_what_upstream_says() -> None:
    benchmark = get_benchmark("ClawGymBench", REAL)
    grades = await grade_all(benchmark)
    scores = {task_id: verdict.score for task_id, verdict in grades.items() if verdict.score is not None}
    assert len(grades) == len(scores) == 200
    assert round(sum(scores.values()) / 200, 4) == 0.0018
    assert scores == pytest.approx({task_id: benchmark.floor_of(task_id) for task_id in scores})

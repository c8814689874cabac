"""The mixing schedule: every pair comes up, at random, the same for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest

from mixharness.algos.schedule import MixSchedule
from mixharness.errors import ConfigError

TASKS, HARNESSES = [f"t{i}" for i in range(5)], ["pi", "claude-code:bare", "agent-loop"]


@pytest.mark.parametrize("rule", ["uniform", "balanced"])
def test_each_pass_has_every_pair_once(rule: str) -> None:
    schedule = MixSchedule(TASKS, HARNESSES, pairs=3, seed=4, rule=rule)  # type: ignore[arg-type]
    draws = [draw for step in range(10) for draw in schedule.draw(step)]
    for start in (0, 15):
        counts = Counter((draw.task, draw.harness) for draw in draws[start : start + 15])
        assert len(counts) == 15
    assert [d.task for d in draws[:15]] != [d.task for d in draws[15:30]]
    assert len({draw.instance for draw in draws}) == 30


def test_balanced_steps_have_as_many_groups_of_each_harness() -> None:
    schedule = MixSchedule(TASKS, HARNESSES, pairs=6, rule="balanced")
    for step in range(5):
        assert set(Counter(draw.harness for draw in schedule.draw(step)).values()) == {2}


def test_a_step_follows_from_seed_and_number() -> None:
    first, second = (MixSchedule(TASKS, HARNESSES, pairs=4, seed=1) for _ in range(2))
    first.draw(0)
    assert first.draw(7) == second.draw(7)
    assert MixSchedule(TASKS, HARNESSES, pairs=4, seed=2).draw(7) != first.draw(7)


def test_few_instances_come_again() -> None:
    schedule = MixSchedule(TASKS, HARNESSES, pairs=40, instances=3)
    assert {draw.instance for draw in schedule.draw(0)} == {0, 1, 2}


def test_nothing_to_mix_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 tasks, 3 harnesses, 1 pairs"):
        MixSchedule([], HARNESSES, pairs=1)
    with pytest.raises(ConfigError, match="mixing rule 'even'"):
        MixSchedule(TASKS, HARNESSES, pairs=1, rule="even")  # type: ignore[arg-type]

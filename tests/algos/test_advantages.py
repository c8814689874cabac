"""Group advantages equal numpy, written out per group."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.algos.trees import SOME

from mixharness.algos.advantages import BASELINES, Baseline, group_advantages

REWARDS = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 1.0]), st.floats(0, 1))


@pytest.mark.parametrize("baseline", BASELINES)
@SOME
@given(rows=st.lists(st.tuples(REWARDS, st.sampled_from("abc")), max_size=24))
def test_equals_numpy(baseline: Baseline, rows: list[tuple[float | None, str]]) -> None:
    rewards, groups = [r for r, _ in rows], [g for _, g in rows]
    result = group_advantages(rewards, groups, baseline, eps=1e-6)
    zero = 0
    for name in set(groups):
        where = [i for i in range(len(rows)) if groups[i] == name and rewards[i] is not None]
        own = np.array([rewards[i] for i in where], float)
        if where and own.max() - own.min() < 1e-9:
            zero += 1
            assert all(result.withheld[i] == "zero_signal" and result.values[i] == 0 for i in where)
            continue
        for i in where:
            others = np.array([rewards[j] for j in where if j != i], float)
            expected = {
                "std": (rewards[i] - own.mean()) / (np.sqrt(((own - own.mean()) ** 2).sum() / len(own)) + 1e-6),
                "mean": rewards[i] - own.mean(),
                "leave_one_out": rewards[i] - others.mean() if len(others) else 0.0,
            }[baseline]
            assert result.values[i] == pytest.approx(expected, rel=1e-9, abs=1e-12)
            assert result.withheld[i] == ""
    invalid = [i for i in range(len(rows)) if rewards[i] is None]
    assert all(result.withheld[i] == "invalid" and result.values[i] == 0 for i in invalid)
    assert result.zero_signal == zero
    assert result.groups == len({g for r, g in rows if r is not None})


def test_an_invalid_rollout_is_in_no_mean() -> None:
    with_it = group_advantages([0.0, 1.0, None], ["a"] * 3).values
    np.testing.assert_allclose(with_it, [-1, 1, 0], atol=1e-5)


def test_harnesses_are_not_compared_with_each_other() -> None:
    values = group_advantages([0.0, 0.2, 0.8, 1.0], ["easy", "easy", "hard", "hard"]).values
    np.testing.assert_allclose(values, [-1, 1, -1, 1], atol=1e-4)

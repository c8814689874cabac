"""Means and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Mean:
    """A mean with its 95% interval; `low` and `high` equal `mean` where the values can't tell."""

    mean: float
    low: float
    high: float
    n: int

    def as_dict(self) -> dict[str, object]:
        """For JSON: {mean, ci95: [low, high], n}."""
        return {"mean": self.mean, "ci95": [self.low, self.high], "n": self.n}


def clustered_mean(groups: Sequence[Sequence[float]], *, resamples: int = 9999, seed: int = 0) -> Mean:
    """Mean over groups (tasks) of the mean within each (its episodes), 95% interval by bootstrap over the groups.

    Episodes of one task are alike, so the task is the unit that is resampled (percentile bootstrap, scipy).

    Args:
        groups: one sequence of scores per task; empty ones are left out.
    """
    means = np.array([np.mean(group) for group in groups if len(group)])
    episodes = sum(len(group) for group in groups)
    if not len(means):
        return Mean(float("nan"), float("nan"), float("nan"), 0)
    mean = float(means.mean())
    if len(means) < 2 or np.ptp(means) == 0.0:
        return Mean(mean, mean, mean, episodes)
    interval = stats.bootstrap(
        (means,), np.mean, n_resamples=resamples, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Mean(mean, float(interval.low), float(interval.high), episodes)

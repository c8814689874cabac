"""What one rollout may use, and how it can end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a rollout ended. Only INFRA_ERROR is invalid: no reward, in no mean, in no group."""

    COMPLETED = "completed"
    TIMEOUT = "timeout"
    TURN_LIMIT = "turn_limit"
    CONTEXT_OVERFLOW = "context_overflow"
    TOKEN_BUDGET = "token_budget"
    HARNESS_ERROR = "harness_error"
    INFRA_ERROR = "infra_error"

    @property
    def truncated(self) -> bool:
        """A limit of ours ended it (gymnasium's `truncated`)."""
        return self in _TRUNCATED


_TRUNCATED = frozenset({Outcome.TIMEOUT, Outcome.TURN_LIMIT, Outcome.CONTEXT_OVERFLOW, Outcome.TOKEN_BUDGET})


@dataclass(frozen=True)
class Limits:
    """Bounds of one rollout.

    Attributes:
        wall_s: seconds from launch to forced end; the task's own limit holds where it is shorter.
        calls: model calls that are answered.
        sampled_tokens: sampled tokens in all, or None.
        context_tokens: prompt + completion of one call; None: the engine's own.
        output_tokens: longest single answer; the harness may ask for less.
    """

    wall_s: float = 600.0
    calls: int = 50
    sampled_tokens: int | None = None
    context_tokens: int | None = None
    output_tokens: int = 4096

"""What a session may still use: calls, sampled tokens, context, and how each answer is sampled."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mixharness.engines.base import Sampling
from mixharness.limits import Limits, Outcome
from mixharness.proxy.calls import CallLog


@dataclass(frozen=True)
class Budget:
    """The bounds of one session.

    Attributes:
        sampling: as configured; its temperature and filters always win over the harness's.
        context_tokens: most tokens of prompt and completion together.
    """

    limits: Limits
    sampling: Sampling
    context_tokens: int

    def left(self, log: CallLog) -> int | None:
        """Tokens that may still be promised, None without a bound: running calls count with all they may sample."""
        total = self.limits.sampled_tokens
        return None if total is None else total - log.sampled - log.promised

    def is_promised(self, log: CallLog) -> bool:
        """Whether no token is left to promise; running calls may yet give some back."""
        left = self.left(log)
        return left is not None and left <= 0

    def is_spent(self, log: CallLog) -> bool:
        """Whether all tokens are sampled."""
        return self.limits.sampled_tokens is not None and log.sampled >= self.limits.sampled_tokens

    def exhausted(self, log: CallLog) -> Outcome | None:
        """The limit that forbids one more call."""
        if log.used >= self.limits.calls:
            return Outcome.TURN_LIMIT
        return Outcome.TOKEN_BUDGET if self.is_promised(log) else None

    def sampling_for(self, asked: int | None, prompt_tokens: int, log: CallLog) -> Sampling:
        """The session's sampling, max_tokens clamped to every bound.

        Args:
            asked: the harness's own max_tokens; it may only lower ours.
        """
        bounds = [self.sampling.max_tokens, self.limits.output_tokens, self.context_tokens - prompt_tokens]
        bounds += [bound for bound in (asked, self.left(log)) if bound is not None]
        return replace(self.sampling, max_tokens=max(1, min(bounds)))

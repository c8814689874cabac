"""Where every sampled token of a rollout went: sampled = trained + Σ dropped, always."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mixharness.errors import MixharnessError


class LedgerError(MixharnessError):
    """Tokens don't add up: a bug of ours, never hidden."""


@dataclass(frozen=True)
class Ledger:
    """Token counts of one rollout, or a sum of many.

    Attributes:
        sampled: tokens the engine sampled.
        trained: those that enter a loss.
        dropped: reason → tokens. Reasons: dead_leaf, retry, subagent, compaction, title, other,
            over_branched, truncated, stale, zero_signal, invalid, ambiguous.

    Raises:
        LedgerError: the counts don't add up.
    """

    sampled: int = 0
    trained: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = self.trained + sum(self.dropped.values())
        if self.sampled != total or min([self.trained, *self.dropped.values()]) < 0:
            raise LedgerError(f"sampled {self.sampled} != trained {self.trained} + dropped {dict(self.dropped)}")

    def withhold(self, reason: str) -> Ledger:
        """The same rollout with all that would have trained dropped for `reason`."""
        dropped = dict(self.dropped)
        if self.trained:
            dropped[reason] = dropped.get(reason, 0) + self.trained
        return Ledger(self.sampled, 0, dropped)

    def as_dict(self) -> dict[str, object]:
        """For JSON: {sampled, trained, dropped}."""
        return {"sampled": self.sampled, "trained": self.trained, "dropped": dict(sorted(self.dropped.items()))}


def total(ledgers: Iterable[Ledger]) -> Ledger:
    """The sum of many ledgers."""
    sampled = trained = 0
    dropped: dict[str, int] = {}
    for ledger in ledgers:
        sampled += ledger.sampled
        trained += ledger.trained
        for reason, tokens in ledger.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + tokens
    return Ledger(sampled, trained, dropped)

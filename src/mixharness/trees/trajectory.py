"""A root-to-leaf path of the call tree, as the token sequence that a trainer sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mixharness.engines.base import LogProbs, TokenIds


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One path. Two trajectories of a rollout share a token exactly when both `ids` and `source` agree
    over the whole prefix up to it.

    Attributes:
        kind: "main", "subagent" or "compaction".
        calls: indices of the calls on the path, root first.
        ids: int32 [n].
        source: int32 [n], the call that sampled the token; -1 for prompt, tool result and template tokens.
        logprobs: float32 [n], the rollout log-prob of sampled tokens, 0 elsewhere.
        versions: int32 [n], weight version of sampled tokens, -1 elsewhere.
    """

    kind: str
    calls: tuple[int, ...]
    ids: TokenIds
    source: npt.NDArray[np.int32]
    logprobs: LogProbs
    versions: npt.NDArray[np.int32]

    @property
    def trainable(self) -> npt.NDArray[np.bool_]:
        """bool [n]: sampled by the policy."""
        return self.source >= 0

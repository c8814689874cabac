"""Many rollouts as one depth-first token sequence in which every shared token stands once.

Tokens form a tree: two tokens are one node when the whole prefixes up to them agree in (id, source), where the source
of a sampled token is (rollout, call) and that of any other token is "nobody". So trajectories of a rollout share what
they share in the call tree; rollouts share only what no policy sampled: the harness's system prompt, a group's task.

In depth-first order all strict descendants of a node are one contiguous range, so with `sub_end` (one past the last
descendant) a query attends to a key exactly when

    attend(q, k) = k <= q and q < sub_end[k]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from mixharness.trees.trajectory import Trajectory

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Normaliser = Literal["rollout", "token", "trajectory"]
NORMALISERS: tuple[Normaliser, ...] = ("rollout", "token", "trajectory")


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """N unique tokens of M trajectories of R rollouts, depth first.

    Attributes:
        ids: int32 [N].
        parent: int32 [N], index of the token before; -1 for a root.
        position: int32 [N], depth, the position a dense run of the trajectory would give the token.
        sub_end: int32 [N], one past the last descendant's index.
        rollout: int32 [N], the rollout (by place in `pack`'s input) that sampled the token; -1: nobody did.
        source: int32 [N], the call of that rollout which sampled it; -1: nobody did.
        logprobs: float32 [N], rollout log-prob of sampled tokens, 0 elsewhere.
        versions: int32 [N], weight version of sampled tokens, -1 elsewhere.
        leaves: int32 [M], last token of each trajectory, in input order.
        owners: int32 [M], the rollout of each trajectory.
        kinds, calls: of each trajectory, as given.
        members: int32 [R], the rollouts packed here.
    """

    ids: Ints
    parent: Ints
    position: Ints
    sub_end: Ints
    rollout: Ints
    source: Ints
    logprobs: Floats
    versions: Ints
    leaves: Ints
    owners: Ints
    kinds: tuple[str, ...]
    calls: tuple[tuple[int, ...], ...]
    members: Ints

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def trainable(self) -> Bools:
        """bool [N]: sampled by the policy."""
        return self.source >= 0

    def path(self, trajectory: int) -> npt.NDArray[np.int64]:
        """int64 [n]: the packed indices of one trajectory, root first: all that its leaf attends to."""
        leaf = int(self.leaves[trajectory])
        return np.flatnonzero(self.sub_end[: leaf + 1] > leaf)

    def trajectory(self, index: int) -> Trajectory:
        """The trajectory as it was given to `pack`."""
        path = self.path(index)
        return Trajectory(
            kind=self.kinds[index],
            calls=self.calls[index],
            ids=self.ids[path],
            source=self.source[path],
            logprobs=self.logprobs[path],
            versions=self.versions[path],
        )

    def trained(self) -> dict[int, int]:
        """Trainable tokens of each rollout packed here: equals its ledger's `trained`."""
        counts = np.bincount(self.rollout[self.trainable], minlength=int(self.members.max(initial=-1)) + 1)
        return {int(member): int(counts[member]) for member in self.members}


def pack(rollouts: Sequence[Sequence[Trajectory]], members: Sequence[int] | None = None) -> PackedBatch:
    """Packs the trajectories of many rollouts into one sequence.

    Args:
        rollouts: the trajectories of each rollout; a rollout may have none.
        members: the number each rollout goes by in `PackedBatch.rollout`; None: its place.

    Raises:
        ValueError: nothing to pack, an empty trajectory, or a sampled token without a prompt before it.
    """
    names = list(range(len(rollouts))) if members is None else list(members)
    owned = [(name, trajectory) for name, group in zip(names, rollouts, strict=True) for trajectory in group]
    if not owned:
        raise ValueError("nothing to pack: no rollout has a trajectory")
    for name, trajectory in owned:
        if len(trajectory.ids) == 0 or trajectory.source[0] >= 0:
            raise ValueError(f"rollout {name}: a trajectory must start with a prompt token")
    keys = _node_keys(owned)
    order = sorted(range(len(owned)), key=lambda i: keys[i].tobytes())  # big-endian, so bytes sort as numbers
    joins = [0, *(_common_prefix(keys[a], keys[b]) for a, b in pairwise(order))]
    parent, sub_end, ends = _depth_first([len(keys[i]) for i in order], joins)
    leaves = np.empty(len(owned), np.int32)
    leaves[order] = ends
    tails = [(*owned[i], join) for i, join in zip(order, joins, strict=True)]
    source = np.concatenate([trajectory.source[join:] for _, trajectory, join in tails]).astype(np.int32)
    rollout = np.concatenate([np.full(len(t.ids) - join, name, np.int32) for name, t, join in tails])
    return PackedBatch(
        ids=np.concatenate([t.ids[join:] for _, t, join in tails]).astype(np.int32),
        parent=parent,
        position=np.concatenate([np.arange(join, len(t.ids), dtype=np.int32) for _, t, join in tails]),
        sub_end=sub_end,
        rollout=np.where(source >= 0, rollout, -1).astype(np.int32),
        source=source,
        logprobs=np.concatenate([t.logprobs[join:] for _, t, join in tails]).astype(np.float32),
        versions=np.concatenate([t.versions[join:] for _, t, join in tails]).astype(np.int32),
        leaves=leaves,
        owners=np.array([name for name, _ in owned], np.int32),
        kinds=tuple(t.kind for _, t in owned),
        calls=tuple(t.calls for _, t in owned),
        members=np.array(sorted(set(names)), np.int32),
    )


def packs(rollouts: Sequence[Sequence[Trajectory]], budget: int) -> list[PackedBatch]:
    """Packs rollouts, in order, into as few sequences of at most `budget` unique tokens as first-come filling gives.

    A rollout is never split, so one that is longer than the budget makes a pack of its own. Rollouts that share
    prompts should stand next to each other. Rollouts without trajectories are left out.
    """
    bins: list[list[int]] = []
    size, last = 0, None
    for index in (i for i, group in enumerate(rollouts) if group):
        own = len(pack([rollouts[index]]))
        grown = own if last is None else own - _shared_prompt(rollouts[last], rollouts[index])
        if bins and size + grown <= budget:
            bins[-1].append(index)
            size += grown
        else:
            bins.append([index])
            size = own
        last = index
    return [pack([rollouts[i] for i in members], members) for members in bins]


def token_weights(
    batches: Iterable[PackedBatch], normaliser: Normaliser = "rollout", rollouts: int | None = None
) -> list[Floats]:
    """The weight of each token in a loss that is a plain sum over tokens; zero on tokens nobody sampled.

    With G rollouts, T_i the unique sampled tokens of rollout i, and τ one of its m_i trajectories:

        rollout:     1 / (G |T_i|)                    every rollout counts the same (the default)
        token:       1 / Σ_i |T_i|                    every token counts the same
        trajectory:  Σ_{τ ∋ t} 1 / (G m_i |T_τ|)      every trajectory of a rollout counts the same

    Args:
        batches: all packs of one optimiser step.
        rollouts: G; None: those with at least one sampled token in these packs.

    Returns:
        float32 [N] for each pack. All of them together sum to 1 when `rollouts` is None.
    """
    batches = list(batches)
    counts = [batch.trained() for batch in batches]
    total = sum(sum(count.values()) for count in counts)
    group = rollouts or max(1, sum(tokens > 0 for count in counts for tokens in count.values()))
    if normaliser == "token":
        return [(batch.trainable / max(1, total)).astype(np.float32) for batch in batches]
    rule = {"rollout": _rollout_weights, "trajectory": _trajectory_weights}[normaliser]
    return [(rule(batch) / group).astype(np.float32) for batch in batches]


def _rollout_weights(batch: PackedBatch) -> npt.NDArray[np.float64]:
    sizes = np.bincount(batch.rollout + 1)
    return np.where(batch.trainable, 1.0 / sizes[batch.rollout + 1], 0.0)


def _trajectory_weights(batch: PackedBatch) -> npt.NDArray[np.float64]:
    weights = np.zeros(len(batch))
    paths = [path[batch.trainable[path]] for path in map(batch.path, range(len(batch.leaves)))]
    trained = [len(path) > 0 for path in paths]
    siblings = np.bincount(batch.owners, weights=np.array(trained, np.float64))
    for owner, path in zip(batch.owners, paths, strict=True):
        if len(path):
            weights[path] += 1.0 / (siblings[owner] * len(path))
    return weights


def _node_keys(owned: Sequence[tuple[int, Trajectory]]) -> list[npt.NDArray[np.uint64]]:
    """One big-endian key for each token: byte order is then tree order, and equal prefixes are one path."""
    calls = 1 + max(int(trajectory.source.max()) for _, trajectory in owned)
    keys = []
    for name, trajectory in owned:
        source = trajectory.source.astype(np.int64)
        sampler = np.where(source < 0, 0, 1 + name * calls + source)
        keys.append(((sampler << 32) | trajectory.ids.astype(np.int64)).astype(">u8"))
    return keys


def _depth_first(lengths: Sequence[int], joins: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    """Lays sorted paths down one after another, each from the depth `joins` where it leaves the path before it.

    Returns:
        parent [N], sub_end [N], and the index of each path's last token.
    """
    size = sum(lengths) - sum(joins)
    parent, sub_end = np.arange(-1, size - 1, dtype=np.int32), np.full(size, size, np.int32)
    spine = np.zeros(max(lengths), np.int32)  # the current path: packed index at each depth
    ends, start, old = [], 0, 0
    for length, join in zip(lengths, joins, strict=True):
        sub_end[spine[join:old]] = start
        if length > join:
            parent[start] = spine[join - 1] if join else -1
        stop = start + length - join
        spine[join:length] = np.arange(start, stop)
        ends.append(spine[length - 1])
        start, old = stop, length
    return parent, sub_end, np.array(ends, np.int32)


def _common_prefix(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def _shared_prompt(a: Sequence[Trajectory], b: Sequence[Trajectory]) -> int:
    """Longest prefix of non-sampled tokens that some trajectories of two rollouts have in common."""

    def prompt(trajectory: Trajectory) -> Ints:
        return trajectory.ids[: int(np.argmax(np.append(trajectory.trainable, True)))]

    return max((_common_prefix(prompt(x), prompt(y)) for x in a for y in b), default=0)

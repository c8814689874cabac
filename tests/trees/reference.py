"""The slow, obvious way to the same results: Python lists, every pair compared, no radix tree.

It knows the truth about each call (role, kind, of) and works from the definitions of select and ledger alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixharness.trees.call import ModelCall
from mixharness.trees.select import TreeOptions

Truth = tuple[str, str, int | None]


@dataclass
class Path:
    kind: str
    ids: list[int]
    source: list[int]
    logprobs: list[float]
    versions: list[int]


def whole(call: ModelCall) -> list[int]:
    return call.prompt_ids.tolist() + call.completion_ids.tolist()


def starts_with(long: list[int], short: list[int]) -> bool:
    return long[: len(short)] == short


def parent(calls: Sequence[ModelCall], index: int) -> int | None:
    """The call it was spliced onto if that is true, else the longest earlier sequence that its prompt starts with."""
    prompt = calls[index].prompt_ids.tolist()
    fitting = [k for k in range(index) if calls[k].sampled and starts_with(prompt, whole(calls[k]))]
    if calls[index].extends in fitting:
        return calls[index].extends
    return max(fitting, key=lambda k: (len(whole(calls[k])), calls[k].status == "answered", k), default=None)


def unique_tokens(calls: Sequence[ModelCall]) -> int:
    """Nodes of a tree of single tokens."""
    root: dict[int, Any] = {}
    count = 0
    for call in calls:
        at = root
        for token in whole(call):
            count += token not in at
            at = at.setdefault(token, {})
    return count


def leaves(calls: Sequence[ModelCall]) -> list[int]:
    parents = {parent(calls, index) for index in range(len(calls))}
    alive = [call.index for call in calls if call.sampled or call.status == "pending"]
    return [index for index in alive if index not in parents]


def branches(calls: Sequence[ModelCall], truth: Sequence[Truth], role: str) -> list[list[list[int]]]:
    """By segment, every branch: the answered calls from the segment's start to one of its calls."""
    found: dict[int, list[list[int]]] = {}
    for index, (mine, _, _) in enumerate(truth):
        if mine != role or calls[index].status != "answered":
            continue
        branch, at = [index], index
        while True:
            _, kind, of = truth[at]
            if of is None or kind == "restart" or truth[of][0] != role:
                break
            if kind == "extends" and calls[of].status == "answered":
                branch.append(of)
            at = of
            if kind == "retry":  # the step is the same: what it carries on is what the first attempt carried on
                continue
        found.setdefault(at, []).append(branch[::-1])
    return [found[start] for start in sorted(found)]


def kept(calls: Sequence[ModelCall], truth: Sequence[Truth], options: TreeOptions) -> set[int]:
    """Calls of the best branch of every segment that trains."""
    roles = ["main"] + ["subagent"] * options.train_subagents + ["compaction"] * options.train_compaction
    chosen: set[int] = set()
    for role in roles:
        for segment in branches(calls, truth, role):
            best = max(segment, key=lambda b: (len(b), sum(calls[c].sampled for c in b), b[-1]))
            chosen.update(best)
    return chosen


def trajectories(calls: Sequence[ModelCall], truth: Sequence[Truth], options: TreeOptions) -> list[Path]:
    if len(leaves(calls)) > options.max_leaves:
        return []
    chosen = kept(calls, truth, options)
    ancestors = {index: _ancestors(calls, index) for index in chosen}
    inner = set().union(*ancestors.values()) if ancestors else set()
    return [_path(calls, truth, leaf, chosen, ancestors[leaf]) for leaf in sorted(chosen - inner)]


def _ancestors(calls: Sequence[ModelCall], index: int) -> set[int]:
    found, at = set[int](), parent(calls, index)
    while at is not None:
        found.add(at)
        at = parent(calls, at)
    return found


def _path(calls: Sequence[ModelCall], truth: Sequence[Truth], leaf: int, chosen: set[int], ancestors: set[int]) -> Path:
    ids = whole(calls[leaf])
    path = Path(truth[leaf][0], ids, [], [], [])
    for position in range(len(ids)):
        source, logprob, version = -1, 0.0, -1
        for call in chosen & (ancestors | {leaf}):
            offset = position - len(calls[call].prompt_ids)
            if 0 <= offset < calls[call].sampled:
                source, version = call, calls[call].weight_version
                logprob = float(calls[call].logprobs[offset])
        path.source.append(source)
        path.logprobs.append(logprob)
        path.versions.append(version)
    return path


def ledger(calls: Sequence[ModelCall], truth: Sequence[Truth], options: TreeOptions) -> dict[str, object]:
    """One token at a time."""
    trains = {source for path in trajectories(calls, truth, options) for source in path.source}
    chosen, retried = kept(calls, truth, options), {of for _, kind, of in truth if kind == "retry"}
    sampled = trained = 0
    dropped: dict[str, int] = {}
    for call in calls:
        role, kind, _ = truth[call.index]
        for _ in range(call.sampled):
            sampled += 1
            if call.index in trains:
                trained += 1
                continue
            if call.index in chosen:
                reason = "over_branched"
            elif role in {"title", "other"} or (
                role != "main"
                and not getattr(options, f"train_{role}s", None)
                and not (role == "compaction" and options.train_compaction)
            ):
                reason = role
            else:
                reason = "retry" if kind == "retry" or call.index in retried else "dead_leaf"
            dropped[reason] = dropped.get(reason, 0) + 1
    return {"sampled": sampled, "trained": trained, "dropped": dict(sorted(dropped.items()))}

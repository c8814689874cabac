"""Random call trees for tests: rollouts whose trajectories share prefixes with each other and across rollouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from mixharness.trees.trajectory import Trajectory

VOCAB = 23
SOME = settings(max_examples=40, deadline=None)
"""For property tests: a busy machine must not fail them."""


def trajectory(parts: Sequence[tuple[int, Sequence[int]]]) -> Trajectory:
    """A trajectory from (source, ids) parts; log-probs and versions follow from the ids, so equal tokens agree."""
    ids = np.concatenate([np.array(tokens, np.int32) for _, tokens in parts])
    source = np.concatenate([np.full(len(tokens), call, np.int32) for call, tokens in parts])
    sampled = source >= 0
    logprobs = np.where(sampled, -0.1 - ids / VOCAB, 0).astype(np.float32)
    calls = tuple(dict.fromkeys(int(call) for call in source if call >= 0))
    return Trajectory("main", calls, ids, source, logprobs, np.where(sampled, source % 3, -1).astype(np.int32))


def tokens(max_size: int = 6) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=max_size)


@st.composite
def rollout(draw: st.DrawFn, prompts: Sequence[Sequence[int]], calls: int = 5) -> list[Trajectory]:
    """Calls that extend the root prompt or an earlier call (retries, branches and continuations alike)."""
    histories: list[list[tuple[int, list[int]]]] = []
    for call in range(draw(st.integers(1, calls))):
        parent = draw(st.integers(-1, call - 1))
        if parent < 0:
            base: list[tuple[int, list[int]]] = [(-1, list(draw(st.sampled_from(list(prompts)))))]
        else:
            base = [*histories[parent], (-1, draw(tokens(3)))]
        histories.append([*base, (call, draw(tokens()))])
    chosen = draw(st.lists(st.sampled_from(range(len(histories))), min_size=1, unique=True))
    return [trajectory(histories[i]) for i in chosen]


@st.composite
def rollouts(draw: st.DrawFn, most: int = 4) -> list[list[Trajectory]]:
    """Several rollouts of one harness: prompts share a system prefix, and a few small alphabets force coincidences."""
    system = draw(tokens(8))
    prompts = [[*system, *draw(tokens(3))] for _ in range(draw(st.integers(1, 2)))]
    return draw(st.lists(rollout(prompts), min_size=1, max_size=most))


def shaped(
    seed: int = 0, *, system: int = 1000, groups: int = 8, prompt: int = 60, size: int = 8, vocab: int = 2000
) -> list[list[Trajectory]]:
    """A mix-harness batch: one harness's system prompt, groups with a task prompt, short two-call rollouts."""
    rng = np.random.default_rng(seed)

    def draw(n: int) -> list[int]:
        return rng.integers(0, vocab, n).tolist()

    head, out = draw(system), []
    for _ in range(groups):
        task = [*head, *draw(prompt)]
        out += [[trajectory([(-1, task), (0, draw(40)), (-1, draw(30)), (1, draw(5))])] for _ in range(size)]
    return out

"""Generated sessions: labels equal the truth; trajectories, masks and ledger equal a slow reference."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.trees import reference
from tests.trees.sessions import Agent, Simulation, asks, result, says, simulations, system, user

from mixharness.trees.select import TreeOptions
from mixharness.trees.tree import CallTree

SLOW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OPTIONS = st.builds(
    TreeOptions,
    max_leaves=st.sampled_from([1, 3, 32]),
    train_subagents=st.booleans(),
    train_compaction=st.booleans(),
)


@SLOW
@given(simulations())
def test_every_call_is_labelled_as_it_happened(sim: Simulation) -> None:
    labels = [(label.role, label.kind, label.of) for label in sim.tree().labels]
    assert labels == sim.truth


@SLOW
@given(simulations())
def test_parents_leaves_and_unique_tokens_equal_the_reference(sim: Simulation) -> None:
    tree = sim.tree()
    assert [tree.parent(i) for i in range(len(tree))] == [reference.parent(sim.calls, i) for i in range(len(tree))]
    assert list(tree.leaves) == reference.leaves(sim.calls)
    assert tree.unique_tokens == reference.unique_tokens(sim.calls)


@SLOW
@given(simulations(), OPTIONS)
def test_trajectories_and_masks_equal_the_reference(sim: Simulation, options: TreeOptions) -> None:
    expected = reference.trajectories(sim.calls, sim.truth, options)
    found = sim.tree().trajectories(options)
    assert [path.kind for path in found] == [path.kind for path in expected]
    for path, other in zip(found, expected, strict=True):
        assert path.ids.tolist() == other.ids
        assert path.source.tolist() == other.source
        assert path.logprobs.tolist() == other.logprobs
        assert path.versions.tolist() == other.versions
        assert path.trainable.tolist() == [source >= 0 for source in other.source]


@SLOW
@given(simulations(), OPTIONS)
def test_the_ledger_equals_a_count_of_single_tokens(sim: Simulation, options: TreeOptions) -> None:
    assert sim.tree().ledger(options).as_dict() == reference.ledger(sim.calls, sim.truth, options)


@SLOW
@given(simulations(), st.randoms(use_true_random=False))
def test_the_order_in_which_calls_are_given_does_not_matter(sim: Simulation, rng: random.Random) -> None:
    shuffled = rng.sample(sim.calls, len(sim.calls))
    tree, other = sim.tree(), CallTree(shuffled)
    assert tree == other and hash(tree) == hash(other)
    assert tree.labels == other.labels and tree.ledger() == other.ledger()


@SLOW
@given(st.lists(st.booleans(), min_size=6, max_size=6))
def test_interleaving_of_concurrent_subagents_does_not_matter(order: list[bool]) -> None:
    """Two subagents run at once; their calls may arrive in any order."""
    tree = two_subagents(order).tree()
    alone = two_subagents([True, True, True, False, False, False]).tree()
    assert tree.ledger() == alone.ledger()
    assert [label.role for label in tree.labels] == ["main", *["subagent"] * 6, "main"]
    assert [p.ids.tolist() for p in tree.trajectories()] == [p.ids.tolist() for p in alone.trajectories()]
    both = TreeOptions(train_subagents=True)
    assert sorted(p.ids.tolist() for p in tree.trajectories(both)) == sorted(
        p.ids.tolist() for p in alone.trajectories(both)
    )


def two_subagents(order: list[bool]) -> Simulation:
    sim = Simulation()
    tasks = ["first of two parallel tasks", "second of two parallel tasks"]
    start = sim.attempt(sim.main, asks(tasks[0], tasks[1]))
    plan = sim.calls[start].answer
    assert plan is not None
    both = {**plan, "tool_calls": [asks("", task)["tool_calls"][0] for task in tasks]}
    sim.calls[start] = replace(sim.calls[start], answer=both)
    children = [Agent("subagent", [system("you are a subagent"), user(task)]) for task in tasks]
    done = [0, 0]
    for first in [*order, *[True] * 3, *[False] * 3]:
        which = 0 if first else 1
        if done[which] == 3:
            continue
        last = done[which] == 2
        words = f"report {which} of a parallel run" if last else f"thought {which} {done[which]} of a parallel run"
        answer = says(words) if last else asks(words, f"command {which} {done[which]}")
        index = sim.attempt(children[which], answer)
        sim.accept(children[which], index, *([] if last else [result(f"output {which} {done[which]} of it")]))
        done[which] += 1
    sim.accept(sim.main, start, *[result(child.history[-1]["content"]) for child in children])
    sim.attempt(sim.main, says("both have ended, so do I"))
    return sim


@SLOW
@given(simulations())
def test_two_trajectories_share_exactly_what_the_tree_shares(sim: Simulation) -> None:
    """Sharing a token means equal ids and sources all the way: then both must come from the same calls."""
    paths = sim.tree().trajectories(TreeOptions(train_subagents=True, train_compaction=True))
    trained = {}
    for path in paths:
        for position in np.flatnonzero(path.trainable):
            prefix = (path.ids[: position + 1].tobytes(), path.source[: position + 1].tobytes())
            token = (int(path.source[position]), int(position))
            assert trained.setdefault(token, prefix) == prefix

"""The tree itself: who extends whom, what is shared, what a snapshot costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mixharness.engines.base import Sampling
from mixharness.trees.call import ModelCall
from mixharness.trees.radix import common_prefix
from mixharness.trees.tree import CallTree


def call(index: int, prompt: list[int], answer: list[int] | None = None, **more: object) -> ModelCall:
    """A call of bare tokens."""
    sampled = np.array(answer or [], np.int32)
    made = ModelCall(
        index,
        "chat",
        (),
        (),
        Sampling(),
        np.array(prompt, np.int32),
        sampled,
        np.zeros(len(sampled), np.float32),
        status="answered" if answer else "pending",
    )
    return replace(made, **more)  # type: ignore[arg-type]


def test_the_parent_is_the_longest_earlier_sequence_that_the_prompt_starts_with() -> None:
    tree = CallTree(
        [
            call(0, [1, 2], [3]),
            call(1, [1, 2, 3, 4], [5]),
            call(2, [1, 2, 3, 4, 5, 6], [7]),
            call(3, [1, 2, 3, 9], [9]),
            call(4, [1, 2, 8], [1]),
        ]
    )
    assert [tree.parent(i) for i in range(5)] == [None, 0, 1, 0, None]
    assert [tree.children(i) for i in range(5)] == [(1, 3), (2,), (), (), ()]
    assert tree.path(2) == (0, 1, 2)
    assert tree.leaves == (2, 3, 4)


def test_a_claim_to_extend_counts_when_the_tokens_agree() -> None:
    calls = [call(0, [1, 2], [3]), call(1, [1, 2], [3]), call(2, [1, 2, 3, 4], [5], extends=0)]
    assert CallTree(calls).parent(2) == 0
    assert CallTree([*calls[:2], replace(calls[2], extends=None)]).parent(2) == 1


@pytest.mark.parametrize("claim", [1, 2, 7, -1])
def test_a_false_claim_to_extend_is_not_believed(claim: int) -> None:
    """Call 1 is no prefix, 2 is the call itself, 7 and -1 are nobody."""
    calls = [call(0, [1, 2], [3]), call(1, [1, 2], [8]), call(2, [1, 2, 3, 4], [5], extends=claim)]
    assert CallTree(calls).parent(2) == 0


def test_of_equal_attempts_the_answered_one_is_the_parent() -> None:
    calls = [call(0, [1], [3]), call(1, [1], [3], status="failed"), call(2, [1, 3, 4], [5])]
    assert CallTree(calls).parent(2) == 0


def test_a_call_without_sampled_tokens_is_nobodys_parent() -> None:
    tree = CallTree([call(0, [1, 2], status="failed"), call(1, [1, 2, 3], [4]), call(2, [1, 2])])
    assert [tree.parent(i) for i in range(3)] == [None, None, None]
    assert tree.leaves == (1, 2)
    assert [pending.index for pending in tree.pending] == [2]


def test_shared_tokens_stand_once_and_are_not_copied() -> None:
    calls = [call(0, [1, 2, 3, 4], [5]), call(1, [1, 2, 9], [5]), call(2, [1, 2, 3, 4, 5, 6], [7])]
    tree = CallTree(calls)
    assert tree.unique_tokens == 9
    assert {node.call for node in tree.nodes if node.sampled} == {0, 1, 2}
    arrays = [array for c in calls for array in (c.prompt_ids, c.completion_ids)]
    assert all(any(np.shares_memory(node.ids, array) for array in arrays) for node in tree.nodes if len(node.ids))


def test_every_path_of_nodes_spells_a_call() -> None:
    calls = [call(0, [1, 2, 3], [5]), call(1, [1, 2, 4], [5]), call(2, [1, 2, 3, 5, 6], [7])]
    nodes = CallTree(calls).nodes
    spelt = set()
    for node in nodes:
        ids, at = node.ids.tolist(), node
        while at.parent >= 0:
            at = nodes[at.parent]
            ids = at.ids.tolist() + ids
        assert len(ids) == node.end
        spelt.add(tuple(ids))
    assert {tuple(c.prompt_ids.tolist() + c.completion_ids.tolist()) for c in calls} <= spelt


def test_indices_must_be_complete() -> None:
    with pytest.raises(ValueError, match=r"0\.\.1"):
        CallTree([call(0, [1]), call(2, [1])])
    with pytest.raises(ValueError, match="each once"):
        CallTree([call(0, [1]), call(0, [1])])


def test_trees_are_equal_by_tokens_and_status() -> None:
    one, same = CallTree([call(0, [1, 2], [3])]), CallTree([call(0, [1, 2], [3], started=5.0)])
    assert one == same and hash(one) == hash(same) and len({one, same}) == 1
    assert one != CallTree([call(0, [1, 2], [4])])
    assert one != CallTree([call(0, [1], [2, 3])])
    assert one != CallTree([call(0, [1, 2], [3], status="failed")])
    assert one != "a tree"
    assert CallTree() == CallTree([]) and len(CallTree()) == 0


def test_a_snapshot_computes_nothing() -> None:
    tree = CallTree([call(0, [1, 2], [3])])
    assert set(vars(tree)) == {"calls"}
    assert repr(tree) == "CallTree(1 calls, 0 pending, 1 tokens sampled)"


def test_an_empty_tree_has_nothing() -> None:
    tree = CallTree()
    assert (tree.labels, tree.leaves, tree.trajectories(), tree.pending) == ((), (), (), ())
    assert tree.ledger().as_dict() == {"sampled": 0, "trained": 0, "dropped": {}}


def test_calls_of_bare_tokens_train_by_their_token_path() -> None:
    tree = CallTree([call(0, [1, 2], [3]), call(1, [1, 2, 3, 4], [5])])
    (path,) = tree.trajectories()
    assert path.calls == (0, 1)
    assert path.source.tolist() == [-1, -1, 0, -1, 1]


def test_common_prefix() -> None:
    long = np.arange(5000, dtype=np.int32)
    other = long.copy()
    other[4000] = -1
    assert common_prefix(long, other) == 4000
    assert common_prefix(long, long[:10]) == 10
    assert common_prefix(long, long[1:]) == 0
    assert common_prefix(long[:0], long) == 0
    assert common_prefix(long[::2], long[:2500]) == 1

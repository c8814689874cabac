"""The prefix cache against a plain dictionary of prefixes."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixharness.engines.base import TokenIds
from mixharness.engines.prefix_cache import KeyValues, Node, PrefixCache, common_prefix

sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=20)


def key_values(ids: TokenIds, start: int) -> KeyValues:
    """Stands for what a model computes: a token's values depend on everything up to it."""
    sums = np.cumsum(ids * 3.0 ** np.arange(len(ids)))[start:]
    return (torch.tensor(sums).view(1, -1, 1), torch.tensor(-sums).view(1, -1, 1))


def known(node: Node) -> tuple[list[int], list[float]]:
    ids = [i for passed in node.path for i in passed.ids.tolist()]
    values = [v for passed in node.path for v in passed.kv[0].flatten().tolist()]
    assert values == [-v for passed in node.path for v in passed.kv[1].flatten().tolist()]
    return ids, values


def all_nodes(node: Node) -> list[Node]:
    return [node, *(below for child in node.children.values() for below in all_nodes(child))]


@settings(max_examples=150, deadline=None)
@given(sequences=sequences)
def test_the_longest_prefix_is_found_with_its_values(sequences: list[list[int]]) -> None:
    cache = PrefixCache(budget=10_000)
    seen: set[tuple[int, ...]] = {()}
    for sequence in sequences:
        ids = np.array(sequence, np.int32)
        node = cache.match(ids)
        found, values = known(node)
        assert tuple(found) == max((p for p in seen if p == tuple(sequence[: len(p)])), key=len)
        assert values == key_values(ids, 0)[0].flatten().tolist()[: len(found)]
        leaf = cache.insert(node, ids[node.depth :], key_values(ids, node.depth))
        assert known(leaf) == (sequence, key_values(ids, 0)[0].flatten().tolist())
        seen |= {tuple(sequence[:n]) for n in range(len(sequence) + 1)}
    assert cache.tokens == len(seen) - 1 == sum(len(node.ids) for node in all_nodes(cache.root))


@settings(max_examples=100, deadline=None)
@given(sequences=sequences, budget=st.integers(0, 15), pinned=st.integers(0, 19))
def test_the_budget_holds_and_pins_are_kept(sequences: list[list[int]], budget: int, pinned: int) -> None:
    cache = PrefixCache(budget)
    kept: Node | None = None
    for i, sequence in enumerate(sequences):
        ids = np.array(sequence, np.int32)
        node = cache.match(ids)
        leaf = cache.insert(node, ids[node.depth :], key_values(ids, node.depth))
        if i == pinned:
            kept = leaf
            leaf.pins += 1
        assert cache.tokens == sum(len(node.ids) for node in all_nodes(cache.root))
        assert kept is None or kept in all_nodes(cache.root)
        allowed = max(budget, len(sequence) + (len(known(kept)[0]) if kept else 0))
        assert cache.tokens <= allowed


def test_an_insert_below_a_stale_match_shares_what_came_meanwhile() -> None:
    cache = PrefixCache(100)
    ids, other = np.array([1, 2, 3, 4], np.int32), np.array([1, 2, 9], np.int32)
    first, second = cache.match(ids), cache.match(other)
    cache.insert(first, ids, key_values(ids, 0))
    leaf = cache.insert(second, other, key_values(other, 0))
    assert known(leaf)[0] == [1, 2, 9] and cache.tokens == 5


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(4)
    for sequence in ([1, 1], [2, 2]):
        ids = np.array(sequence, np.int32)
        cache.insert(cache.root, ids, key_values(ids, 0))
    cache.match(np.array([1, 1], np.int32))
    ids = np.array([3], np.int32)
    cache.insert(cache.root, ids, key_values(ids, 0))
    assert sorted(cache.root.children) == [1, 3]
    cache.clear()
    assert cache.tokens == 0 and not cache.root.children


def test_common_prefix() -> None:
    a = np.array([1, 2, 3], np.int32)
    assert [common_prefix(a, np.array(b, np.int32)) for b in ([], [1], [1, 2, 4], [1, 2, 3, 4], [2])] == [0, 1, 2, 3, 0]

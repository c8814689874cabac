"""Keys and values of past sequences in a radix tree over their token ids, within a budget of tokens.

A call takes the longest cached prefix of its prompt, computes the rest, and gives both its prompt and its completion
back: calls, sessions and rollouts that share a prefix share its computation. One thread uses it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from mixharness.engines.base import TokenIds

KeyValues = tuple[Tensor, ...]
"""Keys and values of consecutive tokens, in whatever form a Forward likes; dimension -2 counts the tokens."""


def common_prefix(a: TokenIds, b: TokenIds) -> int:
    """How many leading ids two arrays share."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


class Node:
    """A run of tokens that follows its parent's. Pinned nodes, and hence all above them, are never evicted."""

    __slots__ = ("children", "ids", "kv", "parent", "pins", "used")

    def __init__(self, ids: TokenIds, kv: KeyValues, parent: Node | None) -> None:
        self.ids, self.kv, self.parent = ids, kv, parent
        self.children: dict[int, Node] = {}
        self.pins = 0
        self.used = 0

    @property
    def path(self) -> list[Node]:
        """The nodes from below the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    @property
    def depth(self) -> int:
        """Tokens from the root to this node's end."""
        return sum(len(node.ids) for node in self.path)


class PrefixCache:
    """The tree.

    Args:
        budget: most tokens to hold; the least recently used leaves go first.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.clear()

    def clear(self) -> None:
        """Forgets everything: the weights have changed."""
        self.root = Node(np.zeros(0, np.int32), (), None)
        self.tokens = 0
        self._clock = 0

    def match(self, ids: TokenIds) -> Node:
        """The node that ends the longest cached prefix of ids (a node is split if the prefix ends inside it)."""
        node = self.root
        while len(ids) and (child := node.children.get(int(ids[0]))) is not None:
            shared = common_prefix(child.ids, ids)
            node = child if shared == len(child.ids) else self._split(child, shared)
            ids = ids[shared:]
            if node is not child:
                break
        self._touch(node)
        return node

    def insert(self, node: Node, ids: TokenIds, kv: KeyValues) -> Node:
        """Adds ids, which follow `node`, with their keys and values; returns the node that ends them."""
        while len(ids) and (child := node.children.get(int(ids[0]))) is not None:
            shared = common_prefix(child.ids, ids)
            node = child if shared == len(child.ids) else self._split(child, shared)
            ids, kv = ids[shared:], _cut(kv, shared, len(ids))
        if len(ids):
            leaf = Node(ids.copy(), kv, node)
            node.children[int(ids[0])] = leaf
            self.tokens += len(ids)
            node = leaf
        self._touch(node)
        self._evict(keep=node)
        return node

    def _touch(self, node: Node) -> None:
        self._clock += 1
        for passed in node.path:
            passed.used = self._clock

    def _split(self, node: Node, at: int) -> Node:
        """Cuts a node in two, returns the upper; the lower keeps its identity. Copies, so that each frees its own."""
        assert node.parent is not None
        upper = Node(node.ids[:at].copy(), _copy(_cut(node.kv, 0, at)), node.parent)
        upper.used = node.used
        upper.children[int(node.ids[at])] = node
        node.parent.children[int(node.ids[0])] = upper
        node.ids, node.kv, node.parent = node.ids[at:].copy(), _copy(_cut(node.kv, at, len(node.ids))), upper
        return upper

    def _evict(self, keep: Node) -> None:
        while self.tokens > self.budget:
            leaves = [leaf for leaf in self._leaves(self.root) if not leaf.pins and leaf is not keep]
            if not leaves:
                return
            oldest = min(leaves, key=lambda leaf: leaf.used)
            assert oldest.parent is not None
            del oldest.parent.children[int(oldest.ids[0])]
            self.tokens -= len(oldest.ids)

    def _leaves(self, node: Node) -> Iterator[Node]:
        for child in node.children.values():
            if child.children:
                yield from self._leaves(child)
            else:
                yield child


def _cut(kv: KeyValues, start: int, stop: int) -> KeyValues:
    return tuple(tensor[..., start:stop, :] for tensor in kv)


def _copy(kv: KeyValues) -> KeyValues:
    return tuple(tensor.clone() for tensor in kv)

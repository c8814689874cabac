"""A call tree as text: one line a call, indented under the call it continues."""

from __future__ import annotations

from mixharness.trees.call import ModelCall
from mixharness.trees.tree import CallTree


def render_tree(tree: CallTree) -> str:
    """`#index role kind prompt+sampled tokens status: what was said`, children indented."""
    lines: list[str] = []
    depth: dict[int, int] = {}
    for call, label in zip(tree.calls, tree.labels, strict=True):
        parent = tree.parent(call.index)
        depth[call.index] = 0 if parent is None else depth[parent] + 1
        indent = "  " * depth[call.index]
        tokens = f"{len(call.prompt_ids)}+{call.sampled}"
        lines.append(f"{indent}#{call.index} {label.role} {label.kind} {tokens} {call.status}: {_gist(call)}")
    return "\n".join(lines) or "(no call yet)"


def _gist(call: ModelCall, width: int = 80) -> str:
    """The start of what was sampled, or what went wrong."""
    text = " ".join((call.error or call.text).split())
    return text if len(text) <= width else text[: width - 1] + "…"

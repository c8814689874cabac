"""Equal parts of consecutive requests are kept once in memory: a history of n turns is resent n times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mixharness.proxy.wire import dumps
from mixharness.trees.call import Message


def share_messages(new: Sequence[Message], old: Sequence[Message]) -> tuple[Message, ...]:
    """The new messages, with the old object in each place where it is equal."""
    kept = (one if _same_message(one, other) else other for one, other in zip(old, new, strict=False))
    return (*kept, *new[len(old) :])


def share_request(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The new raw request, with the old elements of its lists (messages, tools, system) where they are equal."""
    return {key: _share_list(value, old.get(key)) if isinstance(value, list) else value for key, value in new.items()}


def _share_list(new: list[Any], old: object) -> list[Any]:
    if not isinstance(old, list):
        return new
    return [one if _same(one, other) else other for one, other in zip(old, new, strict=False)] + new[len(old) :]


def _same(one: object, other: object) -> bool:
    """Equal as JSON: True is not 1."""
    return one is other or (one == other and dumps(one) == dumps(other))


def _same_message(one: Message, other: Message) -> bool:
    return one == other and _same(one.get("tool_calls"), other.get("tool_calls"))

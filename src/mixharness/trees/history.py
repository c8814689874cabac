"""Canonical message histories, compared: which call carries on which, and who quotes whom.

Messages compare by role, text and tool calls. Ids are left out (harnesses rewrite them) and so is reasoning
(some drop it, some resend it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mixharness.trees.call import Message, ModelCall

SYSTEM_ROLES = frozenset({"system", "developer"})
SHORTEST_QUOTE = 10
"""Characters; shorter text proves nothing when it is found elsewhere."""

_BREAKS = re.compile(r'<[^<>]{0,200}>|[\n\\"]+')
_KEPT = 0.5
"""Share of a history that must survive for it to be the same history, rewritten."""


def text_of(content: object) -> str:
    """The text of a message's content, a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""


def pieces(text: str) -> list[str]:
    """The parts of `text` that survive quoting: between line ends, quotes, backslashes and markup tags."""
    parts = (part.strip() for part in _BREAKS.split(text))
    return [part for part in parts if len(part) >= SHORTEST_QUOTE]


def quoted_share(text: str, where: str) -> float:
    """How much of `text` is found in `where`, 0..1 by characters; 0 when it is too short to tell."""
    parts = pieces(text)
    found = sum(len(part) for part in parts if part in where)
    return found / sum(map(len, parts)) if parts else 0.0


def longest_piece_in(text: str, where: str) -> bool:
    """The longest quotable part of `text` is found in `where`."""
    return max(pieces(text), key=len, default="\0") in where


def argument_texts(message: Message) -> list[str]:
    """Every string inside a message's tool-call arguments that is long enough to be recognised."""
    found: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, str):
            found.extend([value.strip()] if len(value.strip()) >= SHORTEST_QUOTE else [])
        elif isinstance(value, Mapping):
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    for call in message.get("tool_calls") or ():
        collect(call.get("function", {}).get("arguments"))
    return found


class Histories:
    """The histories of a rollout's calls as sequences of small ints: equal ints mean equal messages.

    Attributes:
        system: by call, the ints of its leading system messages.
        body: by call, the ints of the messages after them.
        answer: by call, the int of its answer, None if there is none.
        messages: by int, one message that has it.
    """

    def __init__(self, calls: Sequence[ModelCall]) -> None:
        self._ints: dict[object, int] = {}
        self._contained: dict[tuple[int, int], bool] = {}
        self.messages: list[Message] = []
        self.system: list[tuple[int, ...]] = []
        self.body: list[tuple[int, ...]] = []
        self.answer: list[int | None] = []
        for call in calls:
            self._add(call)

    def _add(self, call: ModelCall) -> None:
        ints = tuple(self._int(message) for message in call.messages)
        lead = next((i for i, m in enumerate(call.messages) if m["role"] not in SYSTEM_ROLES), len(ints))
        self.system.append(ints[:lead])
        self.body.append(ints[lead:])
        self.answer.append(None if call.answer is None else self._int(call.answer))

    def _int(self, message: Message) -> int:
        calls = [(c["function"]["name"], c["function"].get("arguments")) for c in message.get("tool_calls") or ()]
        asked = json.dumps(calls, sort_keys=True, ensure_ascii=False, default=str) if calls else ""
        key = (message["role"], text_of(message.get("content")).strip(), asked)
        if key not in self._ints:
            self._ints[key] = len(self.messages)
            self.messages.append(message)
        return self._ints[key]

    def role(self, number: int) -> str:
        """The role of message `number`."""
        return str(self.messages[number]["role"])

    def text(self, number: int) -> str:
        """The text of message `number`."""
        return text_of(self.messages[number].get("content"))

    def said(self, call: int, roles: frozenset[str]) -> str:
        """All text of these roles in a call's body."""
        return "\n".join(self.text(m) for m in self.body[call] if self.role(m) in roles)

    def continues(self, call: int, earlier: int) -> bool:
        """`call` literally repeats `earlier`'s messages and its answer."""
        before, now = self.body[earlier], self.body[call]
        return len(now) > len(before) and now[: len(before)] == before and now[len(before)] == self.answer[earlier]

    def appends(self, call: int, earlier: int) -> bool:
        """`call` repeats `earlier`'s request, adds to it (a message, or text at its end), but not its answer."""
        before, now = self.body[earlier], self.body[call]
        if not before or len(now) < len(before) or self.system[call] != self.system[earlier]:
            return False
        if len(now) > len(before):
            return now[: len(before)] == before
        last, changed = before[-1], now[-1]
        grown = last != changed and self.role(last) == self.role(changed)
        return now[:-1] == before[:-1] and grown and self.text(changed).startswith(self.text(last).rstrip())

    def kept(self, call: int, earlier: int) -> float:
        """Share of `earlier`'s messages that survive in `call`, wherever they stand and whatever was put around."""
        before, now = self.body[earlier], set(self.body[call])
        alive = sum(m in now or self._inside(m, call) for m in before)
        return alive / len(before) if before else 0.0

    def rewrites(self, call: int, earlier: int) -> bool:
        """At least half of `earlier`'s messages survive in `call`."""
        return self.kept(call, earlier) >= _KEPT

    def _inside(self, message: int, call: int) -> bool:
        if self.role(message) != "user":
            return False
        return any(self._contains(message, other) for other in self.body[call] if self.role(other) == "user")

    def _contains(self, message: int, other: int) -> bool:
        if (message, other) not in self._contained:
            found = quoted_share(self.text(message), self.text(other)) >= _KEPT
            self._contained[message, other] = found
        return self._contained[message, other]

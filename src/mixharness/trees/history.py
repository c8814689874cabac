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
        given: by int, the calls whose answer it is.
    """

    def __init__(self, calls: Sequence[ModelCall]) -> None:
        self._ints: dict[object, int] = {}
        self._known: dict[int, int] = {}
        self._steps: dict[tuple[int, int], int] = {}
        self._ending: dict[int, list[int]] = {}
        self._contained: dict[tuple[int, int], bool] = {}
        self.messages: list[Message] = []
        self.system: list[tuple[int, ...]] = []
        self.body: list[tuple[int, ...]] = []
        self.prefixes: list[tuple[int, ...]] = []
        """By call and length, a number for that many messages of its body: equal numbers, equal prefixes."""
        self.answer: list[int | None] = []
        self.given: dict[int, list[int]] = {}
        for call in calls:
            self._add(call)

    def _add(self, call: ModelCall) -> None:
        ints = tuple(self._int(message) for message in call.messages)
        lead = next((i for i, m in enumerate(call.messages) if m["role"] not in SYSTEM_ROLES), len(ints))
        answer, prefixes = None if call.answer is None else self._int(call.answer), [0]
        for number in ints[lead:]:
            prefixes.append(self._steps.setdefault((prefixes[-1], number), len(self._steps) + 1))
        if answer is not None:
            self.given.setdefault(answer, []).append(call.index)
        self._ending.setdefault(prefixes[-1], []).append(len(self.body))
        self.system.append(ints[:lead])
        self.body.append(ints[lead:])
        self.prefixes.append(tuple(prefixes))
        self.answer.append(answer)

    def _int(self, message: Message) -> int:
        if (known := self._known.get(id(message))) is not None:
            return known
        calls = [(c["function"]["name"], c["function"].get("arguments")) for c in message.get("tool_calls") or ()]
        asked = json.dumps(calls, sort_keys=True, ensure_ascii=False, default=str) if calls else ""
        key = (message["role"], text_of(message.get("content")).strip(), asked)
        if key not in self._ints:
            self._ints[key] = len(self.messages)
            self.messages.append(message)
        self._known[id(message)] = self._ints[key]
        return self._ints[key]

    def ending_at(self, call: int, length: int) -> list[int]:
        """The calls before `call` whose whole body is the first `length` messages of its body."""
        return [k for k in self._ending.get(self.prefixes[call][length], ()) if k < call]

    def role(self, number: int) -> str:
        """The role of message `number`."""
        return str(self.messages[number]["role"])

    def text(self, number: int) -> str:
        """The text of message `number`."""
        return text_of(self.messages[number].get("content"))

    def said(self, call: int, roles: frozenset[str]) -> str:
        """All text of these roles in a call's body."""
        return "\n".join(self.text(m) for m in self.body[call] if self.role(m) in roles)

    def continued(self, call: int) -> list[int]:
        """The earlier calls whose messages and answer `call` literally repeats, the longest ones only."""
        body = self.body[call]
        for length in reversed(range(1, len(body))):
            if found := [k for k in self.ending_at(call, length) if self.answer[k] == body[length]]:
                return found
        return []

    def appended_to(self, call: int) -> list[int]:
        """The earlier calls whose request `call` repeats and adds to (a message, or text at its end), the longest."""
        length = len(self.body[call])
        grown = [k for k in self._grown_from(call) if self.system[k] == self.system[call]]
        for shorter in reversed(range(1, length)):
            found = [k for k in self.ending_at(call, shorter) if self.system[k] == self.system[call]]
            if grown or found:
                return grown or found
        return grown

    def _grown_from(self, call: int) -> list[int]:
        """The earlier calls that differ from `call` only by text added to their last message."""
        body = self.body[call]
        if not body:
            return []
        last, text = body[-1], self.text(body[-1])
        return [
            k
            for k in range(call)
            if len(self.body[k]) == len(body)
            and self.prefixes[k][-2] == self.prefixes[call][-2]
            and self.body[k][-1] != last
            and self.role(self.body[k][-1]) == self.role(last)
            and text.startswith(self.text(self.body[k][-1]).rstrip())
        ]

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

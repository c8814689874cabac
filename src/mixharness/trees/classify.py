"""What each call was for: the main agent's step, a subagent's, a summary, a title, something else.

Structure decides: system messages and tools, whose history a call carries on, who uses its answer (a tool
result, a later prompt), who quotes whom. Headers only confirm; where they disagree, the label says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mixharness.trees.call import ModelCall
from mixharness.trees.history import Histories, argument_texts, longest_piece_in, pieces, quoted_share, text_of
from mixharness.trees.links import Kind, Link, Linker

Role = Literal["main", "subagent", "title", "compaction", "other"]
_SUBAGENT_HEADERS = ("x-claude-code-agent-id", "x-openai-subagent", "x-parent-session-id", "x-codex-parent-thread-id")
_RETRY_HEADER = "x-stainless-retry-count"
_MARKED = "<conversation>"
"""Around the history that a summary is asked of: pi, opencode and OpenClaw; the history may be empty."""
_TEXT = frozenset({"user", "assistant", "system", "developer"})
_USED = 0.5
"""Share of a text that must be found elsewhere for it to have been used there."""


@dataclass(frozen=True)
class CallLabel:
    """What one call is, and why we think so.

    Attributes:
        index: the call.
        role: whose call it is.
        kind: "new" starts a history; "extends" carries on the history of `of`; "retry" takes the step of `of`
            once more; "restart" goes on after a compaction.
        of: the call that `kind` refers to; for a restart the call that wrote the summary, or the last one
            before the cut when no summary was seen.
        reason: the evidence, in words.
        confidence: 0..1.
    """

    index: int
    role: Role
    kind: Kind
    of: int | None
    reason: str
    confidence: float


def label_calls(calls: Sequence[ModelCall], parents: Sequence[int | None] | None = None) -> tuple[CallLabel, ...]:
    """Labels every call of a rollout.

    Args:
        calls: all of them, by index.
        parents: by call, the one it extends token by token; what the calls claim themselves by default.
    """
    return _Labeller(calls, parents or [call.extends for call in calls]).labels()


@dataclass(frozen=True)
class _Verdict:
    role: Role
    reason: str
    confidence: float


class _Labeller:
    def __init__(self, calls: Sequence[ModelCall], parents: Sequence[int | None]) -> None:
        self.calls = calls
        self.histories = Histories(calls)
        self.linker = Linker(calls, parents, self.histories)
        self.links = self.linker.links
        self.threads = _threads(self.links)
        self.main = self._main_root()
        self.restarted_from = {link.of for link in self.links if link.kind == "restart"}

    def labels(self) -> tuple[CallLabel, ...]:
        by_thread = {root: self._thread_role(root) for root in set(self.threads)}
        verdicts = [self._call_role(call, by_thread[root]) for call, root in enumerate(self.threads)]
        for call in reversed(range(len(verdicts))):
            link = self.links[call]
            if link.kind == "retry" and link.of is not None and verdicts[call].role == "compaction":
                verdicts[link.of] = replace(verdicts[call], reason=f"call {call}, its retry, is a summary")
        return tuple(self._label(call, verdict) for call, verdict in enumerate(verdicts))

    def _label(self, call: int, verdict: _Verdict) -> CallLabel:
        link, kind = self.links[call], self.links[call].kind
        if link.appended and verdict.role != "compaction":
            kind = "retry"
        reason, confidence = self._headers(call, verdict, kind)
        told = f"{link.reason}; {verdict.reason}{reason}"
        return CallLabel(call, verdict.role, kind, link.of, told, round(min(link.confidence, confidence), 2))

    def _headers(self, call: int, verdict: _Verdict, kind: Kind) -> tuple[str, float]:
        """What the headers add: (words, confidence)."""
        headers, confidence = self.calls[call].headers, verdict.confidence
        words = ""
        if found := [name for name in _SUBAGENT_HEADERS if headers.get(name)]:
            agrees = verdict.role == "subagent"
            words += f"; header {found[0]} {'agrees' if agrees else 'says subagent'}"
            confidence = min(1.0, confidence + 0.1) if agrees else confidence * 0.7
        if headers.get(_RETRY_HEADER, "0") != "0":
            words += f"; header {_RETRY_HEADER} {'agrees' if kind == 'retry' else 'says retry'}"
            confidence *= 1.0 if kind == "retry" else 0.8
        return words, confidence

    # The main thread.

    def _main_root(self) -> int | None:
        """The first history with tools that no answer of another history asked for."""
        roots = [root for root in sorted(set(self.threads)) if self._asks(root)]
        with_tools = [root for root in roots if self.calls[root].tools] or roots
        return next((root for root in with_tools if self._spawner(root) is None), with_tools[0] if with_tools else None)

    def _asks(self, call: int) -> bool:
        return bool(self.histories.body[call]) or len(self.calls[call].prompt_ids) > 0

    def _call_role(self, call: int, thread: _Verdict) -> _Verdict:
        """A call's own role: its thread's, unless it is a summary inside that thread."""
        if self.links[call].near is None and thread.role != "main":
            return thread
        if call in self.restarted_from and self._answers_in_text(call):
            return _Verdict("compaction", "a later history starts from its answer", 0.95)
        if self.links[call].appended and not self._continued(call):
            return _Verdict("compaction", "asks in place of the answer, and is not carried on", 0.6)
        return thread

    def _answers_in_text(self, call: int) -> bool:
        answer = self.calls[call].answer
        return answer is not None and not answer.get("tool_calls") and not self._continued(call)

    def _continued(self, call: int) -> bool:
        return any(link.of == call and link.kind == "extends" and not link.appended for link in self.links)

    # The other threads.

    def _thread_role(self, root: int) -> _Verdict:
        if root == self.main:
            return _Verdict("main", "the main history", 0.98)
        if not self._asks(root):
            return _Verdict("other", "no model call: it has no messages", 1.0)
        for look in (self._summary, self._subagent, self._title, self._second_session):
            if (verdict := look(root)) is not None:
                return verdict
        if self.calls[root].tools:
            return _Verdict("subagent", "a history with tools of its own, nothing known to ask for it", 0.5)
        return _Verdict("other", "a side call without tools", 0.7)

    def _members(self, root: int) -> list[int]:
        return [call for call, thread in enumerate(self.threads) if thread == root]

    def _summary(self, root: int) -> _Verdict | None:
        members = self._members(root)
        attempts = all(self.links[call].kind in {"new", "retry"} for call in members)
        if attempts and any(call in self.restarted_from for call in members):
            return _Verdict("compaction", "a later history starts from its answer", 0.95)
        if self.calls[root].tools:
            return None
        if quoted := self._quoted_calls(root):
            return _Verdict("compaction", f"without tools, quotes the work of calls {_brief(quoted)}", 0.85)
        if _MARKED in self.histories.said(root, _TEXT):
            return _Verdict("compaction", f"without tools, about what it marks as {_MARKED}", 0.6)
        return None

    def _quoted_calls(self, root: int) -> list[int]:
        """Earlier calls of other threads whose answer, or the tool result it led to, stands inside root's messages."""
        said = self.histories.said(root, _TEXT)
        return [k for k in range(root) if self.threads[k] != root and self._work_quoted(k, said)]

    def _work_quoted(self, call: int, said: str) -> bool:
        answer = self.calls[call].answer
        if answer is None:
            return False
        told = [text_of(answer.get("content")), *argument_texts(answer)]
        quoted = any(quoted_share(text, said) >= _USED for text in told)
        return quoted or (bool(answer.get("tool_calls")) and self._result_quoted(call, said))

    def _result_quoted(self, call: int, said: str) -> bool:
        """A tool result that answers `call` is quoted, at least by its beginning."""
        for later, link in enumerate(self.links):
            if link.of == call and link.kind == "extends":
                results = [m for m in self.histories.body[later] if self.histories.role(m) == "tool"]
                starts = [pieces(self.histories.text(m)[:400]) for m in results[-1:]]
                return any(parts and parts[0] in said for parts in starts)
        return False

    def _subagent(self, root: int) -> _Verdict | None:
        spawner, user = self._spawner(root), self._consumer(root)
        if spawner is not None:
            used = "" if user is None else f", its last answer is a tool result in call {user}"
            return _Verdict("subagent", f"its task is an argument in the answer of call {spawner}{used}", 0.97)
        if user is not None and self.calls[root].tools:
            return _Verdict("subagent", f"its last answer is a tool result in call {user}", 0.85)
        return None

    def _spawner(self, root: int) -> int | None:
        """The call whose tool-call argument is the task of this thread."""
        said = self.histories.said(root, frozenset({"user"}))
        for call in reversed(range(root)) if self.calls[root].tools else ():
            answer = self.calls[call].answer
            if answer is None or self.threads[call] == root:
                continue
            task = max(argument_texts(answer), key=len, default="")
            given = longest_piece_in(task, said) and quoted_share(task, said) >= _USED
            # The same agent may mention in a later conversation what it used in an earlier one.
            if given and (not self._same_agent(call, root) or pieces(said)[-1:] == pieces(task)[-1:]):
                return call
        return None

    def _same_agent(self, a: int, b: int) -> bool:
        """Equal system messages and equal tools."""
        tools = [{tool["name"] for tool in self.calls[call].tools} for call in (a, b)]
        return self.histories.system[a] == self.histories.system[b] and tools[0] == tools[1]

    def _consumer(self, root: int) -> int | None:
        """The later call of another thread with this thread's last answer in a tool result."""
        last = self._members(root)[-1]
        answer = self.calls[last].answer
        text = "" if answer is None else text_of(answer.get("content"))
        for call in range(last + 1, len(self.calls)):
            if self.threads[call] == root or self.links[call].of is None:
                continue
            if quoted_share(text, self.histories.said(call, frozenset({"tool"}))) >= _USED:
                return call
        return None

    def _title(self, root: int) -> _Verdict | None:
        if self.main is None or self.calls[root].tools:
            return None
        asked, body = self.histories.said(root, _TEXT), self.histories.body
        shared = set(body[root]) & set(body[self.main])
        if shared or any(self._task_quoted(message, asked) for message in body[self.main]):
            return _Verdict("title", f"without tools, about the task that call {self.main} starts with", 0.85)
        return None

    def _task_quoted(self, message: int, where: str) -> bool:
        """The end of a user message is quoted: harnesses put their reminders before the user's own words."""
        parts = pieces(self.histories.text(message)) if self.histories.role(message) == "user" else []
        return bool(parts) and parts[-1] in where

    def _second_session(self, root: int) -> _Verdict | None:
        if self.main is not None and self._same_agent(root, self.main):
            why = f"system messages and tools of call {self.main}: another conversation"
            return _Verdict("main", why, 0.7)
        return None


def _threads(links: Sequence[Link]) -> list[int]:
    """By call, the first call of its thread."""
    threads: list[int] = []
    for call, link in enumerate(links):
        threads.append(call if link.near is None else threads[link.near])
    return threads


def _brief(calls: list[int]) -> str:
    return ", ".join(map(str, calls)) if len(calls) <= 3 else f"{calls[0]}…{calls[-1]}"

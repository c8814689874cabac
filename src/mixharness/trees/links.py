"""How each call relates to the calls before it: a new history, a continuation, a retry, a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mixharness.trees.call import ModelCall
from mixharness.trees.history import Histories, longest_piece_in, quoted_share, text_of

Kind = Literal["new", "extends", "retry", "restart"]
_CARRIED = 0.4
"""Share of a summary's text that the restarted history carries at least (analysis parts are left behind)."""
_USER = frozenset({"user", "system", "developer"})
_SPOKEN = frozenset({"user", "assistant"})


@dataclass(frozen=True)
class Link:
    """What one call makes of an earlier one.

    Attributes:
        kind, of, reason, confidence: as in CallLabel.
        near: a call of the same thread, None when it starts one.
        appended: it repeats the request of `of`, adds to it, and leaves its answer out.
    """

    kind: Kind
    of: int | None
    near: int | None
    reason: str
    confidence: float
    appended: bool = False


class Linker:
    """Links the calls of one rollout, in order of arrival.

    Args:
        parents: by call, the call that it extends token by token, or None.
    """

    def __init__(self, calls: Sequence[ModelCall], parents: Sequence[int | None], histories: Histories) -> None:
        self.calls, self.parents, self.histories = calls, parents, histories
        self.links: list[Link] = []
        for call in range(len(calls)):
            self.links.append(self._link(call))

    def _link(self, call: int) -> Link:
        rules = (self._again, self._carried_on, self._again_rewritten, self._restarted, self._rewritten, self._appended)
        for rule in rules:
            if (link := rule(call)) is not None:
                return link
        return Link("new", None, None, "starts a history of its own", 0.95)

    def _carried_on(self, call: int) -> Link | None:
        """Exactly an earlier history; of the two ways the one that accounts for more messages."""
        carried, bodies = self._literal(call) or self._spliced(call), self.histories.body
        if carried is None or carried.of is None:
            return None
        appended = self._appended(call)
        if appended is None or appended.of is None:
            return carried
        return appended if len(bodies[appended.of]) > len(bodies[carried.of]) + 1 else carried

    def _spliced(self, call: int) -> Link | None:
        parent = self.parents[call]
        if parent is None:
            return None
        return Link("extends", parent, parent, f"its prompt starts with the tokens of call {parent}", 0.95)

    def failed(self, call: int) -> bool:
        """The harness got no whole answer."""
        return self.calls[call].status == "failed"

    def unusable(self, call: int) -> bool:
        """Failed, or an answer no harness can act on: cut off, or without text and tool calls."""
        answer = self.calls[call].answer
        empty = answer is not None and not text_of(answer.get("content")).strip() and not answer.get("tool_calls")
        return self.failed(call) or empty or self.calls[call].finish == "length"

    def _literal(self, call: int) -> Link | None:
        """The messages and the answer of an earlier call, then more."""
        best = max(
            self.histories.continued(call),
            key=lambda k: (self.parents[call] == k, not self.failed(k), self._alike(call, k), k),
            default=None,
        )
        if best is None:
            return None
        if self.parents[call] == best:
            return Link("extends", best, best, f"its prompt starts with the tokens of call {best} and its answer", 1.0)
        sure = 0.98 if self._alike(call, best) else 0.9
        return Link("extends", best, best, f"repeats the messages of call {best} and its answer", sure)

    def _alike(self, call: int, earlier: int) -> bool:
        return self.histories.system[call] == self.histories.system[earlier]

    def _again(self, call: int) -> Link | None:
        """The same request once more: a retry, unless a newer summary produced it."""
        length = len(self.histories.body[call])
        same = [k for k in self.histories.ending_at(call, length) if self._alike(call, k)]
        if not same or not length:
            return None
        last = same[-1]
        restart = self._restarted(call)
        if restart is not None and restart.of is not None and restart.of > last:
            return restart
        if self.failed(last):
            return Link("retry", last, last, f"the same messages as call {last}, which failed", 0.98)
        used = any(link.of == last and link.kind == "extends" for link in self.links)
        before = self.calls[last]
        overlap = before.status == "pending" or self.calls[call].started < before.finished
        why = "while it ran" if overlap else "although its answer was used" if used else "its answer was never used"
        return Link("retry", last, last, f"the same messages as call {last}, {why}", 0.6 if overlap or used else 0.85)

    def _again_rewritten(self, call: int) -> Link | None:
        """The step of a failed call once more, in other words."""
        last = self._last_alike(call)
        if last is None or not self.failed(last):
            return None
        if last in self.histories.appended_to(call) and self._spoke(call) == self._spoke(last):
            return Link("retry", last, last, f"call {last}, which failed, with a note added", 0.9)
        if self._spoke(call) == self._spoke(last) and self.histories.rewrites(call, last):
            return Link("retry", last, last, f"call {last}, which failed, in other words", 0.85)
        return None

    def _spoke(self, call: int) -> list[int]:
        """The assistant's messages in a call's history."""
        return [m for m in self.histories.body[call] if self.histories.role(m) == "assistant"]

    def _last_alike(self, call: int) -> int | None:
        """The latest earlier call with the same system messages and tools."""
        tools = {tool["name"] for tool in self.calls[call].tools}
        return next(
            (
                k
                for k in reversed(range(call))
                if self._alike(call, k) and {tool["name"] for tool in self.calls[k].tools} == tools
            ),
            None,
        )

    def _restarted(self, call: int) -> Link | None:
        """A history that a newer answer's text opens, in place of the messages it sums up."""
        spoken = self._spoken(call)
        floor = -1 if spoken is None else spoken
        for summary in reversed(range(floor + 1, call)):
            if self._carries(call, summary):
                near = spoken if spoken is not None else self._last_before(call, summary)
                return Link("restart", summary, near, f"its history was replaced by the answer of call {summary}", 0.95)
        return None

    def _carries(self, call: int, summary: int) -> bool:
        """`call` has the text of `summary`'s answer where a harness puts summaries."""
        answer, own = self.calls[summary].answer, self._alike(call, summary)
        if answer is None or answer.get("tool_calls") or self.failed(summary):
            return False
        if self.calls[summary].tools and not own:  # a subagent's report
            return False
        thread = self._last_before(call, summary)
        text, said = text_of(answer.get("content")), self.histories.said(call, _USER if own else _SPOKEN)
        if thread is None or quoted_share(text, said) < _CARRIED:
            return False
        new = not longest_piece_in(text, self.histories.said(summary, _USER))
        return new or not self.histories.rewrites(call, summary if own else thread)

    def _last_before(self, call: int, summary: int) -> int | None:
        """The latest call before `summary` with `call`'s system messages that wrote no summary itself."""
        summaries = {link.of for link in self.links if link.kind == "restart"}
        earlier = (k for k in reversed(range(summary)) if self._alike(call, k) and self.histories.body[k])
        return next((k for k in earlier if k not in summaries), None)

    def _spoken(self, call: int) -> int | None:
        """The call that gave the last answer that `call`'s history repeats."""
        body = self.histories.body[call]
        for at in reversed(range(len(body))):
            if self.histories.role(body[at]) != "assistant":
                continue
            gave = [k for k in self.histories.given.get(body[at], ()) if k < call and self._alike(call, k)]
            if gave:
                return max(gave, key=lambda k: (self.histories.rewrites(call, k), not self.failed(k), k))
        return None

    def _rewritten(self, call: int) -> Link | None:
        """A history that repeats an earlier answer, but not literally what came before it."""
        spoken = self._spoken(call)
        if spoken is None:
            return None
        if self.histories.rewrites(call, spoken):
            kept = self.histories.kept(call, spoken)
            why = f"repeats the answer of call {spoken} and {kept:.0%} of its messages"
            return Link("extends", spoken, spoken, why, 0.6 + 0.3 * kept)
        return Link("restart", spoken, spoken, f"keeps the answer of call {spoken}, but little of its history", 0.6)

    def _appended(self, call: int) -> Link | None:
        """The request of an earlier call with something added, without its answer."""
        best = max(self.histories.appended_to(call), default=None)
        if best is None:
            return None
        now, before = self.histories.body[call], self.histories.body[best]
        if len(now) > len(before) and self.histories.role(now[len(before)]) == "assistant":
            return Link("extends", best, best, f"repeats the request of call {best}, its answer in other words", 0.75)
        if self.unusable(best):
            return Link("retry", best, best, f"call {best}, whose answer was of no use, with a note added", 0.85)
        why = f"adds to the request of call {best}, without its answer"
        return Link("extends", best, best, why, 0.7, appended=True)

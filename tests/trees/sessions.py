"""Generated sessions whose truth is known: a simulated harness with retries, subagents, titles, compaction, rewrites.

Text becomes tokens one character at a time, so that a resent history is the tokens that were sampled, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mixharness.engines.base import Sampling
from mixharness.trees.call import EMPTY_IDS, EMPTY_LOGPROBS, CallStatus, Message, ModelCall, ToolSpec
from mixharness.trees.tree import CallTree

TOOLS: tuple[ToolSpec, ...] = ({"name": "bash", "description": "", "parameters": {}},)
ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
END = 5
Truth = tuple[str, str, int | None]
"""(role, kind, of) of a call."""


def encode(text: str) -> list[int]:
    return [ord(letter) + 10 for letter in text]


def written(message: Message) -> str:
    """Everything of a message that becomes tokens, its role apart."""
    return message["content"] + "".join(
        f"<{c['function']['name']} {c['function']['arguments']}>" for c in message.get("tool_calls", ())
    )


def render(messages: Sequence[Message]) -> list[int]:
    """Prompt tokens: every message between its role and END, then the role of the answer."""
    ids: list[int] = []
    for message in messages:
        ids += [ROLES[message["role"]], *encode(written(message)), END]
    return [*ids, ROLES["assistant"]]


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def result(text: str) -> Message:
    return {"role": "tool", "content": text, "tool_call_id": "x"}


def asks(text: str, argument: str) -> Message:
    """An answer with a tool call."""
    call = {"id": "x", "type": "function", "function": {"name": "bash", "arguments": {"command": argument}}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


def says(text: str) -> Message:
    """An answer without one."""
    return {"role": "assistant", "content": text}


def make_call(
    index: int,
    messages: Sequence[Message],
    answer: Message | None,
    *,
    status: CallStatus = "answered",
    extends: int | None = None,
    tools: tuple[ToolSpec, ...] = TOOLS,
    finish: str | None = None,
    headers: dict[str, str] | None = None,
    version: int = 0,
) -> ModelCall:
    """A call whose answer was sampled as it is written; log-probs follow from index and position."""
    ids = np.array([*encode(written(answer)), END], np.int32) if answer else EMPTY_IDS
    logprobs = -np.arange(1, len(ids) + 1, dtype=np.float32) / (index + 2) if answer else EMPTY_LOGPROBS
    return ModelCall(
        index,
        "chat",
        tuple(messages),
        tools,
        Sampling(),
        np.array(render(messages), np.int32),
        ids,
        logprobs,
        answer,
        finish=(finish or "stop") if answer else None,
        status=status,
        extends=extends,
        weight_version=version,
        started=float(index),
        finished=index + 0.5,
        headers=headers or {},
    )


@dataclass(frozen=True)
class Compaction:
    """How a harness compacts.

    Attributes:
        inside: the summary is asked for in the agent's own history, else in a history apart.
        spoken: the new history has the summary as the assistant's words (only when it was asked for apart).
        keeps_round: the last answer and its tool result stay.
    """

    inside: bool
    spoken: bool
    keeps_round: bool


@dataclass
class Agent:
    """One agent of the simulated harness: its history, and the call that the next one carries on."""

    role: str
    history: list[Message]
    last: int | None = None
    cut: bool = False
    """Its history was just replaced by a summary."""
    summary: int | None = None
    """The call that wrote it."""


@dataclass(repr=False)
class Simulation:
    """Plays a script and records what a proxy would record, and the truth about each call."""

    rewriting: bool = False
    """A throw-away note stands at the end of every main request."""
    calls: list[ModelCall] = field(default_factory=list)
    truth: list[Truth] = field(default_factory=list)
    unique: int = 0
    pending_retry: dict[int, int] = field(default_factory=dict)
    """By agent: the attempt at its present step that didn't count."""

    def __repr__(self) -> str:
        kinds = [f"{c.index}:{r}/{k}/{o}/{c.status}" for c, (r, k, o) in zip(self.calls, self.truth, strict=True)]
        return f"Simulation({'rewriting, ' if self.rewriting else ''}{' '.join(kinds)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # hypothesis prints failing examples with it
        printer.text(repr(self))

    def __post_init__(self) -> None:
        self.main = Agent("main", [system("you are the main agent here"), user("please do the whole task at hand")])

    def words(self, what: str) -> str:
        """Text that occurs nowhere else."""
        self.unique += 1
        return f"{what} number {self.unique} of this session"

    def request(self, agent: Agent) -> list[Message]:
        note = [user("a note that is thrown away afterwards")] if self.rewriting and agent.role == "main" else []
        return [*agent.history, *note]

    def record(
        self, agent: Agent, messages: Sequence[Message], answer: Message | None, truth: Truth, **more: Any
    ) -> int:
        index = len(self.calls)
        version = index // 3
        self.calls.append(make_call(index, messages, answer, version=version, **more))
        self.truth.append(truth)
        return index

    def kind(self, agent: Agent) -> tuple[str, int | None]:
        if agent.cut:
            return "restart", agent.summary
        return ("new", None) if agent.last is None else ("extends", agent.last)

    def attempt(self, agent: Agent, answer: Message | None, status: CallStatus = "answered") -> int:
        """One call of the agent's present step."""
        kind, of = self.kind(agent)
        again = self.pending_retry.get(id(agent))
        if again is not None:
            kind, of = "retry", again
        index = self.record(agent, self.request(agent), answer, (agent.role, kind, of), status=status)
        self.pending_retry[id(agent)] = index
        return index

    def accept(self, agent: Agent, index: int, *more: Message) -> None:
        """The harness takes the answer and goes on."""
        answer = self.calls[index].answer
        assert answer is not None
        agent.history += [answer, *more]
        agent.last, agent.cut = index, False
        self.pending_retry.pop(id(agent), None)

    def step(self, agent: Agent) -> None:
        index = self.attempt(agent, asks(self.words("a thought"), self.words("a command")))
        self.accept(agent, index, result(self.words("an output")))

    def error(self, agent: Agent) -> None:
        """A failure before a token was sampled."""
        self.attempt(agent, None, "failed")

    def cut_answer(self, agent: Agent) -> None:
        """A failure after sampling; the answer is lost."""
        self.attempt(agent, asks(self.words("a lost thought"), self.words("a lost command")), "failed")

    def ignored(self, agent: Agent) -> None:
        """An answer that the harness throws away, to ask again."""
        self.attempt(agent, says(self.words("an ignored thought")))

    def noted_retry(self, agent: Agent) -> None:
        """A failure; the next attempts carry a note about it, for good."""
        self.attempt(agent, None, "failed")
        last = agent.history[-1]
        note = user(self.words("a note about the failure"))
        if last["role"] == "user":
            agent.history[-1] = user(f"{last['content']}\n{note['content']}")
        else:
            agent.history.append(note)

    def spawn(self, agent: Agent, script: Sequence[tuple[str, Any]]) -> None:
        task = self.words("a task for the subagent")
        index = self.attempt(agent, asks(self.words("a plan"), task))
        child = Agent("subagent", [system("you are a subagent"), user(f"reminder first\n{task}")])
        self.perform(child, script)
        last = self.attempt(child, says(self.words("a report of the subagent")))
        self.accept(child, last)
        self.accept(agent, index, result(f"it said: {child.history[-1]['content']}"))

    def title(self) -> None:
        messages = [system("you make a title"), user(f"make one for: {self.main.history[1]['content']}")]
        self.record(self.main, messages, says(self.words("a title")), ("title", "new", None), tools=())

    def compact(self, agent: Agent, style: Compaction) -> None:
        """A summary in the agent's own history or apart from it; then the history is replaced."""
        assert agent.last is not None
        answer = says(self.words("the summary of all that was done so far"))
        if style.inside:
            messages = [*agent.history, user("now write a summary instead")]
            index = self.record(agent, messages, answer, ("compaction", "extends", agent.last))
        else:
            told = "\n".join(written(message) for message in agent.history[1:])
            messages = [system("you write summaries"), user(f"sum this up:\n{told}")]
            index = self.record(agent, messages, answer, ("compaction", "new", None), tools=())
        told = f"what happened before: {answer['content']}"
        opening = [user("what did we do so far?"), answer] if style.spoken and not style.inside else [user(told)]
        kept = agent.history[-2:] if style.keeps_round else []
        agent.history = [agent.history[0], *opening, *kept]
        agent.cut, agent.summary = True, index

    def perform(self, agent: Agent, script: Sequence[tuple[str, Any]]) -> None:
        for name, value in script:
            fresh = agent.last is None or agent.cut or id(agent) in self.pending_retry
            if name == "compact" and not fresh and agent.history[-1]["role"] == "tool":
                self.compact(agent, value)
            elif name == "spawn":
                self.spawn(agent, value)
            elif name == "title":
                self.title()
            elif name != "compact":
                getattr(self, name)(agent)

    def play(self, script: Sequence[tuple[str, Any]]) -> None:
        self.perform(self.main, script)
        self.accept(self.main, self.attempt(self.main, says(self.words("the final words"))))

    def tree(self) -> CallTree:
        return CallTree(self.calls)


STEP = st.tuples(st.just("step"), st.none())
TROUBLE = st.tuples(st.sampled_from(["error", "cut_answer", "ignored", "noted_retry"]), st.none())
COMPACT = st.tuples(st.just("compact"), st.builds(Compaction, st.booleans(), st.booleans(), st.booleans()))
SPAWN = st.tuples(st.just("spawn"), st.lists(st.one_of(STEP, TROUBLE, COMPACT), max_size=3))
OPERATIONS = st.one_of(STEP, STEP, TROUBLE, SPAWN, COMPACT)


@st.composite
def simulations(draw: st.DrawFn, rewriting: bool | None = None) -> Simulation:
    """A finished session; a title call may come first or second."""
    sim = Simulation(rewriting=draw(st.booleans()) if rewriting is None else rewriting)
    script = draw(st.lists(OPERATIONS, max_size=8))
    where = draw(st.sampled_from([None, 0, 1]))
    if where is not None:
        script.insert(where, ("title", None))
    sim.play(script)
    return sim

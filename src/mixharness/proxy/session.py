"""One rollout's state at the proxy: its secret, its calls, its limits, how it ended.

A call's life: `begin` (limits, prompt ids, recorded as pending) → `sample` (a task of the session: it goes on
when the client leaves, so that sampled tokens are recorded) → `closed`. Each change replaces the
call's immutable snapshot and raises `version`. A call is "answered" from the moment its answer is sampled, so
that the next request can extend it; it becomes "failed" if the answer then can't be delivered whole.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mixharness.engines.base import Completion, Engine, GenerateRequest, InjectedFault, Sampling
from mixharness.errors import InfraError
from mixharness.limits import Limits, Outcome
from mixharness.proxy.dialects import DIALECTS, CanonicalRequest, Dialect, dialect_for
from mixharness.proxy.dialects.base import assistant, tool_call
from mixharness.proxy.gate import Gate
from mixharness.proxy.sampling import Retry, TokenMismatch, generate, read
from mixharness.proxy.sharing import share_messages, share_request
from mixharness.proxy.splice import Prompt, Splicer
from mixharness.trees.call import Message, ModelCall

_log = logging.getLogger(__name__)
_SEED_STRIDE = 1_000_003
Sink = Callable[["Session", ModelCall], None]


class Refused(Exception):
    """A call that a limit forbids; answered in the dialect's own error.

    Args:
        kind: "over" (finished, a spent budget, a failed session) or "overflow".
        tokens, maximum: of an overflow.
    """

    def __init__(self, kind: Literal["over", "overflow"], message: str, tokens: int = 0, maximum: int = 0) -> None:
        self.kind, self.message, self.tokens, self.maximum = kind, message, tokens, maximum
        super().__init__(message)


class CallFailed(Exception):
    """A call that our side could not answer."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """A finished call."""

    answer: Message
    completion: Completion


class Session:
    """See the module. Made by `Proxy.open_session`; lives on one event loop.

    Attributes:
        id, secret, model: its URL part, its API key, the model name it lists.
        infra_error: what failed on our side, or None.
        refusals: kind → requests refused ("over", "overflow").
    """

    def __init__(
        self,
        session_id: str,
        engine: Engine,
        *,
        limits: Limits,
        sampling: Sampling,
        model: str,
        secret: str,
        gate: Gate | None = None,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        sink: Sink | None = None,
    ) -> None:
        self.id, self.engine, self.limits, self.sampling = session_id, engine, limits, sampling
        self.model, self.secret = model, secret
        self.infra_error: str | None = None
        self.refusals: Counter[str] = Counter()
        self._gate, self._retry, self._sink = gate or Gate(), retry, sink
        self._splicer = Splicer(engine.codec)
        self._calls: list[ModelCall] = []
        self._prompts: dict[int, Prompt] = {}
        self._reasoning: dict[str, str] = {}
        self._tasks: dict[int, asyncio.Task[Sampled]] = {}
        self._left: set[int] = set()
        self._delivering: set[int] = set()
        self._stop: Outcome | None = None
        self._overflowed = self._finished = False
        self._newest_weights = -1
        self._version, self._change = 0, asyncio.Event()
        self._changed_at = time.monotonic()

    # -- what others read ------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The URL prefix below which the session is served."""
        return f"/r/{self.id}"

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """Immutable snapshots in arrival order."""
        return tuple(self._calls)

    @property
    def version(self) -> int:
        """Rises with each change."""
        return self._version

    @property
    def stop_reason(self) -> Outcome | None:
        """The limit that ended it: TURN_LIMIT or TOKEN_BUDGET; CONTEXT_OVERFLOW while an overflow came last."""
        return self._stop or (Outcome.CONTEXT_OVERFLOW if self._overflowed else None)

    @property
    def context_tokens(self) -> int:
        """Most tokens of prompt and completion together."""
        return min(self.limits.context_tokens or self.engine.max_model_len, self.engine.max_model_len)

    @property
    def sampled_tokens(self) -> int:
        """Tokens sampled so far."""
        return sum(call.sampled for call in self._calls)

    def is_owner(self, *keys: str) -> bool:
        """Whether any of the keys is the session's secret; constant time per key."""
        return any([hmac.compare_digest(key.encode(errors="replace"), self.secret.encode()) for key in keys])

    async def changed(self, since: int) -> int:
        """Waits until `version` is above `since`; returns it."""
        while self._version <= since:
            await self._change.wait()
        return self._version

    # -- how it ends -------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """From now on every call gets the dialect's permanent error."""
        if not self._finished:
            self._finished = True
            self._bump()

    def fail(self, reason: str) -> None:
        """Our side failed: the rollout is invalid. The first reason stays."""
        self.infra_error = self.infra_error or reason
        self._bump()

    async def settle(self, quiet_s: float = 0.2, timeout_s: float = 10.0) -> None:
        """Waits until nothing is in flight and nothing changed for `quiet_s`; then, or at the time limit, abandons
        what is still in flight, so that no call stays pending."""
        end = time.monotonic() + timeout_s
        while (now := time.monotonic()) < end:
            quiet_at = self._changed_at + quiet_s
            busy = bool(self._tasks or self._delivering)
            if not busy and now >= quiet_at:
                return
            wait = end - now if busy else min(end, quiet_at) - now
            try:
                await asyncio.wait_for(self.changed(self._version), wait)
            except TimeoutError:
                continue
        await self.abandon()

    def cancel(self) -> list[asyncio.Task[Sampled]]:
        """Cancels what is in flight; those calls become failed, without tokens. Returns their tasks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks

    async def abandon(self) -> None:
        """Cancels what is in flight and waits for it to end."""
        await asyncio.gather(*self.cancel(), return_exceptions=True)
        for index in list(self._delivering):
            self.closed(index, "the session ended during delivery")

    # -- the life of a call --------------------------------------------------------------------------------------

    def locate(self, request: CanonicalRequest) -> Prompt:
        """The prompt of a request; records nothing.

        Raises:
            Refused: the session is over.
        """
        self._check_open()
        return self._splicer.locate(self._with_reasoning(request), request.tools)

    async def begin(
        self, dialect: Dialect, request: CanonicalRequest, raw: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ModelCall:
        """Accepts a call: its prompt ids are fixed and it is pending.

        Raises:
            Refused: a limit forbids it.
        """
        self._check_open()
        while self._budget_left() <= 0 and self._tasks:
            await self.changed(self._version)
            self._check_open()
        self._check_budgets()
        prompt = self.locate(request)
        self._check_context(len(prompt.ids))
        return self._record(dialect, request, raw, headers, prompt)

    def sample(self, call: ModelCall) -> asyncio.Task[Sampled]:
        """Starts sampling. The task raises InjectedFault or CallFailed; the call is recorded either way."""
        task = asyncio.create_task(self._sample(call), name=f"{self.id}/{call.index}")
        self._tasks[call.index] = task
        self._delivering.add(call.index)
        task.add_done_callback(lambda done: self._done(call.index, done))
        return task

    def closed(self, index: int, why: str = "") -> None:
        """A call's exchange is over; with a reason, the client did not get the whole answer."""
        if index not in self._delivering:
            return
        self._delivering.discard(index)
        call = self._calls[index]
        if call.status == "pending":
            self._left.add(index)
        self._store(replace(call, status="failed", error=why) if why and call.status == "answered" else call)

    def replay(
        self,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        outcome: Mapping[str, Any],
        *,
        at: float | None = None,
    ) -> ModelCall:
        """A recorded call through dialect, splicing and record, without HTTP, sampling or limits.

        Args:
            path: with its query, below the session's URL.
            outcome: {"status": 200 | 4xx | 5xx | "reset" | "cut", "message": {content, reasoning, tool_calls:
                [{id, name, arguments}]} | None, "error": {...}}. The message's tokens are those a policy would
                have to sample; a cut answer's are kept, its call is failed.
            at: seconds, for started and finished.

        Raises:
            UnsupportedDialect, BadRequest: the call can't be read.
        """
        dialect = dialect_for(path)
        request = dialect.parse_request(body, headers, "generate")
        prompt = self._splicer.locate(self._with_reasoning(request), request.tools)
        call = self._record(dialect, request, body, headers, prompt)
        if at is not None:
            call = replace(call, started=at, finished=at)
        error = (
            "" if outcome["status"] == 200 else f"recorded: {outcome['status']} {outcome.get('error') or ''}".strip()
        )
        if not outcome.get("message"):
            self._store(replace(call, status="failed", error=error or "recorded without an answer"))
            return self._calls[call.index]
        message = _message_of(outcome["message"])
        ids = self.engine.codec.encode_answer(call.messages, call.tools, message)
        completion = Completion(ids, np.zeros(len(ids), np.float32), "stop", call.weight_version)
        self._answer(call, completion, error, [tool["id"] for tool in message.get("tool_calls", ())])
        return self._calls[call.index]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _with_reasoning(self, request: CanonicalRequest) -> tuple[Message, ...]:
        """The messages, thinking that came back by signature alone filled in."""
        if not request.signatures:
            return request.messages
        messages = list(request.messages)
        for index, signature in request.signatures.items():
            if signature in self._reasoning and not messages[index].get("reasoning_content"):
                messages[index] = {**messages[index], "reasoning_content": self._reasoning[signature]}
        return tuple(messages)

    def _check_open(self) -> None:
        if self._stop is not None:
            raise self._refused("over", f"This session's limit is spent: {self._stop.value}.")
        if self._finished or self.infra_error:
            raise self._refused("over", "This session is over.")

    def _check_budgets(self) -> None:
        used = sum(call.status != "failed" or call.sampled > 0 for call in self._calls)
        if used >= self.limits.calls:
            self._halt(Outcome.TURN_LIMIT)
        elif self._budget_left() <= 0:
            self._halt(Outcome.TOKEN_BUDGET)
        self._check_open()

    def _check_context(self, tokens: int) -> None:
        maximum = self.context_tokens - 1  # room for one sampled token
        if tokens > maximum:
            self._overflowed = True
            self._bump()
            raise self._refused("overflow", "context overflow", tokens, maximum)

    def _refused(self, kind: Literal["over", "overflow"], message: str, tokens: int = 0, maximum: int = 0) -> Refused:
        self.refusals[kind] += 1
        return Refused(kind, message, tokens, maximum)

    def _halt(self, outcome: Outcome) -> None:
        self._stop = self._stop or outcome
        self._bump()

    def _budget_left(self) -> int:
        """Tokens that may still be promised: running calls count with all they may sample."""
        if self.limits.sampled_tokens is None:
            return self.context_tokens
        promised = sum(call.sampling.max_tokens for call in self._calls if call.status == "pending")
        return self.limits.sampled_tokens - self.sampled_tokens - promised

    def _sampling_for(self, request: CanonicalRequest, prompt_tokens: int) -> Sampling:
        bounds = [self.sampling.max_tokens, self.limits.output_tokens, self.context_tokens - prompt_tokens]
        bounds += [self._budget_left()] if self.limits.sampled_tokens is not None else []
        bounds += [request.max_tokens] if request.max_tokens is not None else []
        seed = self.sampling.seed
        seed = None if seed is None else (seed * _SEED_STRIDE + len(self._calls)) % 2**31
        return replace(self.sampling, max_tokens=max(1, min(bounds)), seed=seed)

    def _record(
        self,
        dialect: Dialect,
        request: CanonicalRequest,
        raw: Mapping[str, Any],
        headers: Mapping[str, str],
        prompt: Prompt,
    ) -> ModelCall:
        parent = self._calls[prompt.extends] if prompt.extends is not None else self._calls[-1] if self._calls else None
        call = ModelCall(
            index=len(self._calls),
            dialect=dialect.name,
            messages=share_messages(self._with_reasoning(request), parent.messages if parent else ()),
            tools=parent.tools if parent and parent.tools == request.tools else request.tools,
            sampling=self._sampling_for(request, len(prompt.ids)),
            prompt_ids=prompt.ids,
            extends=prompt.extends,
            fork=prompt.fork,
            weight_version=self.engine.weight_version,
            started=time.monotonic(),
            headers=headers,
            normalised=request.normalised + prompt.notes,
            request=share_request(raw, parent.request if parent else {}),
        )
        self._overflowed = False
        self._splicer.add_prompt(prompt)
        self._prompts[call.index] = prompt
        self._calls.append(call)
        self._bump()
        return call

    async def _sample(self, call: ModelCall) -> Sampled:
        structured = {"messages": list(call.messages), "tools": list(call.tools)}
        request = GenerateRequest(call.prompt_ids, call.sampling, self.id, call.index, structured)
        try:
            completion = await generate(
                self.engine, request, self._gate, self._retry, lambda version: self._dispatched(call.index, version)
            )
            return self._answer(self._calls[call.index], completion, self._why_left(call.index))
        except InjectedFault as fault:
            self._faulted(call.index, fault)
            raise
        except asyncio.CancelledError:
            self._fail_call(call.index, "abandoned: the session ended")
            raise CallFailed("the session ended") from None
        except Exception as error:
            if not isinstance(error, InfraError):
                _log.exception("session %s: the engine or codec failed on call %d", self.id, call.index)
            reason = f"{type(error).__name__}: {error}"
            self._fail_call(call.index, reason)
            self.fail(reason)
            raise CallFailed("the model failed") from error

    def _dispatched(self, index: int, version: int) -> None:
        if version < self._newest_weights:
            raise TokenMismatch(f"weight version fell from {self._newest_weights} to {version} within a session")
        self._newest_weights = version
        self._calls[index] = replace(self._calls[index], weight_version=version)

    def _why_left(self, index: int) -> str:
        return "client left" if index in self._left else ""

    def _answer(self, call: ModelCall, completion: Completion, error: str, tool_ids: Sequence[str] = ()) -> Sampled:
        """Records a sampled answer; with an error, its tokens are kept and the call is failed."""
        answer, text = read(completion, self.engine.codec, call.prompt_ids)
        answer = _with_ids(call.dialect, answer, tool_ids)
        call = replace(
            call,
            completion_ids=completion.ids,
            logprobs=completion.logprobs,
            answer=answer,
            text=text,
            finish=completion.finish,
            status="failed" if error else "answered",
            error=error,
            weight_version=completion.weight_version,
        )
        if answer.get("reasoning_content"):
            self._reasoning[self.answer_id(call.index)] = answer["reasoning_content"]
        self._splicer.add_answer(self._prompts[call.index], call)
        self._store(call)
        if completion.finish == "length" and self._budget_left() <= 0:
            self._halt(Outcome.TOKEN_BUDGET)
        return Sampled(answer, completion)

    def answer_id(self, index: int) -> str:
        """Unique within the proxy; also the signature of the answer's thinking block."""
        return f"{self.id}-{index}"

    def _faulted(self, index: int, fault: InjectedFault) -> None:
        error = f"injected fault {fault.status}: {fault.message}"
        if fault.completion is None:
            self._fail_call(index, error)
        else:
            self._answer(self._calls[index], fault.completion, error)

    def _fail_call(self, index: int, error: str) -> None:
        self._store(replace(self._calls[index], status="failed", error=error))

    def _done(self, index: int, task: asyncio.Task[Sampled]) -> None:
        self._tasks.pop(index, None)
        if not task.cancelled():
            task.exception()  # nobody may be waiting any more: what it raised is recorded in the call
        if self._calls[index].status == "pending":  # cancelled before its first step
            self._fail_call(index, "abandoned: the session ended")
        self._bump()

    def _store(self, call: ModelCall) -> None:
        """Replaces a call's snapshot; once its delivery is over, too, it is final and goes to the sink."""
        stamped = call if call.status == "pending" or call.finished else replace(call, finished=time.monotonic())
        self._calls[call.index] = stamped
        self._bump()
        if self._sink and stamped.status != "pending" and call.index not in self._delivering:
            self._sink(self, stamped)

    def _bump(self) -> None:
        self._version += 1
        self._changed_at = time.monotonic()
        change, self._change = self._change, asyncio.Event()
        change.set()


def _with_ids(dialect_name: str, answer: Message, given: Sequence[str]) -> Message:
    """The answer with the given tool-call ids, or else with the codec's in the dialect's style."""
    if not answer.get("tool_calls"):
        return answer
    dialect = next(dialect for dialect in DIALECTS if dialect.name == dialect_name)
    own = [dialect.call_id(call["id"].removeprefix("call_")) for call in answer["tool_calls"]]
    ids = given if len(given) == len(own) else own
    return {**answer, "tool_calls": [{**c, "id": i} for c, i in zip(answer["tool_calls"], ids, strict=True)]}


def _message_of(recorded: Mapping[str, Any]) -> Message:
    """The canonical assistant message of a recorded answer."""
    calls = [tool_call(c["id"], c["name"], c["arguments"]) for c in recorded.get("tool_calls") or ()]
    return assistant(recorded.get("content") or "", recorded.get("reasoning") or "", calls)

"""An in-process engine over a transformers model: a decode loop in a thread of its own.

Calls that wait together are decoded together, a token each a step; a new call joins between two steps. A call
computes only what no earlier call has: see `prefix_cache`. Log-probs are those of the T=1 model without filters,
whatever the sampling: training refuses temperatures other than 0 and 1, and filters.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

from mixharness.engines.base import Completion, GenerateRequest, LogProbs, TokenIds
from mixharness.engines.codec import ChatCodec
from mixharness.engines.forward import Forward, Row
from mixharness.engines.hf import HfForward
from mixharness.engines.prefix_cache import Node, PrefixCache
from mixharness.engines.qwen3 import Qwen3Forward, is_supported
from mixharness.engines.sampler import Draw, pick
from mixharness.errors import ConfigError, EngineError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class _Ticket:
    """Carries a result from the engine's thread to the event loop that waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.cancelled = False

    async def result(self) -> Any:
        try:
            return await self.future
        finally:
            self.cancelled = True

    def deliver(self, result: object) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, result)
        except RuntimeError:
            if not self._loop.is_closed():  # nobody waits on a closed loop
                raise

    def _settle(self, result: object) -> None:
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


@dataclass(eq=False)
class _Job:
    """Work between two steps: a score, a weight update."""

    ticket: _Ticket
    work: Callable[[], object]


@dataclass(eq=False)
class _Call:
    """A call that waits for its place in the batch."""

    ticket: _Ticket
    request: GenerateRequest
    room: int
    seed: tuple[int, int]


@dataclass(eq=False)
class _Run(Row):
    """A call in the batch: its row, the cached node that ends its prompt, and what it has sampled."""

    call: _Call
    node: Node
    uniforms: npt.NDArray[np.float64]
    logprobs: list[float] = field(default_factory=list)

    def draw(self) -> Draw:
        return Draw(self.call.request.sampling, float(self.uniforms[len(self.logprobs)]))


class TransformersEngine:
    """See the module.

    Args:
        source: a directory that transformers loads (model and tokenizer), or a loaded model, used as it is (then give
            a codec; dtype and device are the model's).
        codec: messages to ids; None: from the directory.
        dtype: "float32", "bfloat16" or "float16".
        device: "cpu", "cuda", ...
        threads: torch's threads while it computes; None leaves them alone. One is best beside other processes.
        max_batch: most calls decoded together; more wait.
        max_model_len: most tokens of prompt and completion; None: the model's own.
        cache_mb: memory for keys and values of past calls.
        seed: where calls without a seed of their own get their random numbers from; None: from the system.
        lean: False computes a Qwen3 through transformers as well.

    Raises:
        ConfigError: nothing to load there, or an unknown dtype.
    """

    def __init__(
        self,
        source: str | Path | PreTrainedModel,
        *,
        codec: ChatCodec | None = None,
        dtype: str = "float32",
        device: str = "cpu",
        threads: int | None = 1,
        max_batch: int = 16,
        max_model_len: int | None = None,
        cache_mb: int = 512,
        seed: int | None = None,
        lean: bool = True,
    ) -> None:
        model = source if isinstance(source, PreTrainedModel) else _load(source, dtype, device)
        self.spec = f"transformers:{source}" if isinstance(source, str | Path) else "transformers:model"
        self.codec = codec or ChatCodec.load(str(source))
        self._stop_ids = self.codec.stop_ids | _stop_ids(model)
        self._vocab = int(model.config.vocab_size)
        self._forward = _forward(model, max_batch, lean)
        self._max_model_len = _context(model, max_model_len)
        self._max_batch, self._threads = max_batch, threads
        self._cache = PrefixCache(cache_mb * 2**20 // self._forward.bytes_per_token)
        self._seeds = np.random.default_rng(seed)
        self._version = 0
        self._inbox: queue.SimpleQueue[_Call | _Job | None] = queue.SimpleQueue()
        self._waiting: deque[_Call] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def weight_version(self) -> int:
        """Updates so far."""
        return self._version

    @property
    def max_model_len(self) -> int:
        """Most tokens of prompt and completion together."""
        return self._max_model_len

    async def generate(self, request: GenerateRequest) -> Completion:
        """Samples one completion; with a seed it repeats, whatever runs beside it.

        Raises:
            EngineError: the prompt is empty, too long or not of this vocabulary, or the forward failed.
        """
        self._check(request.prompt_ids)
        room = min(request.sampling.max_tokens, self._max_model_len - len(request.prompt_ids))
        if room < 1:
            raise EngineError(
                f"{self.spec}: no room for an answer: the prompt has {len(request.prompt_ids)} of "
                f"{self._max_model_len} tokens, max_tokens is {request.sampling.max_tokens}"
            )
        seed = request.sampling.seed
        seed = int(self._seeds.integers(2**63)) if seed is None else seed
        stream = (seed, request.call)  # a rollout's calls share its seed, but must not share their random numbers
        ticket = _Ticket()
        self._put(_Call(ticket, request, room, stream))
        completion: Completion = await ticket.result()
        return completion

    async def score(self, ids: TokenIds) -> LogProbs:
        """Log-probs of ids[1:] from one full forward without any cache: float32 [n-1]."""
        self._check(ids)
        if len(ids) == 1:
            return np.zeros(0, np.float32)
        ticket = _Ticket()
        self._put(_Job(ticket, lambda: self._forward.score(ids)))
        scored: LogProbs = await ticket.result()
        return scored

    async def update_weights(self, state: Mapping[str, Tensor]) -> int:
        """Replaces the weights between two steps, drops all caches, returns the new version.

        Args:
            state: a state dict under the model's own names; a tied head may be missing.

        Raises:
            EngineError: calls are in flight (drain the proxy first).
            ConfigError: a tensor is missing or has another shape; the old weights stay.
        """
        ticket = _Ticket()
        self._put(_Job(ticket, lambda: self._update(state)))
        version: int = await ticket.result()
        return version

    async def aclose(self) -> None:
        """Fails what is in flight and ends the thread."""
        self._closed = True
        if self._thread is not None:
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join)

    def _check(self, ids: TokenIds) -> None:
        if not len(ids) or ids.min() < 0 or ids.max() >= self._vocab or len(ids) > self._max_model_len:
            seen = f"{len(ids)} ids" + (f" from {ids.min()} to {ids.max()}" if len(ids) else "")
            raise EngineError(f"{self.spec} takes 1 to {self._max_model_len} ids below {self._vocab}, not {seen}")

    def _put(self, item: _Call | _Job) -> None:
        if self._closed:
            raise EngineError(f"{self.spec} is closed")
        self._inbox.put(item)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.spec, daemon=True)
            self._thread.start()

    # ---- everything below runs in the engine's thread

    def _work(self) -> None:
        while self._receive():
            try:
                self._admit()
                if self._forward.rows:
                    self._sample(list(self._forward.rows), self._forward.step())
            except Exception as error:
                self._fail(error)

    def _receive(self) -> bool:
        """Takes what has come in, and waits if there is nothing to do; False: the engine closes."""
        idle = not self._forward.rows and not self._waiting
        while idle or not self._inbox.empty():
            item = self._inbox.get()
            if idle and self._threads:
                torch.set_num_threads(self._threads)  # whoever ran meanwhile may have set its own
            idle = False
            if item is None:
                self._fail(EngineError(f"{self.spec} was closed"))
                return False
            if isinstance(item, _Call):
                self._waiting.append(item)
            else:
                self._do(item)
        return True

    def _do(self, job: _Job) -> None:
        try:
            job.ticket.deliver(job.work())
        except Exception as error:
            job.ticket.deliver(error)

    def _fail(self, error: Exception) -> None:
        """Nothing that was computed can be trusted: every call fails, and the caches go."""
        failure = error if isinstance(error, EngineError) else EngineError(f"{self.spec}: {error!r}")
        failure.__cause__ = None if failure is error else error
        for call in [*(run.call for run in self._forward.rows), *self._waiting]:
            call.ticket.deliver(failure)
        self._waiting.clear()
        self._forward.clear()
        self._cache.clear()

    def _update(self, state: Mapping[str, Tensor]) -> int:
        if self._forward.rows or self._waiting:
            flying = len(self._forward.rows) + len(self._waiting)
            raise EngineError(f"{self.spec}: {flying} calls are in flight; drain the proxy before a weight update")
        self._forward.load(state)
        self._cache.clear()
        self._version += 1
        return self._version

    def _admit(self) -> None:
        """Prefills waiting calls while there is room in the batch, and samples their first token."""
        while self._waiting and len(self._forward.rows) < self._max_batch:
            call = self._waiting[0]
            if not call.ticket.cancelled:
                self._start(call)
            self._waiting.popleft()

    def _start(self, call: _Call) -> None:
        prompt = call.request.prompt_ids
        ids = np.empty(len(prompt) + call.room, np.int32)
        ids[: len(prompt)] = prompt
        node = self._cache.match(prompt[:-1])  # the last id is always computed: its logits are needed
        run = _Run(ids, len(prompt), call, node, np.random.default_rng(call.seed).random(call.room))
        logits = self._forward.add(run, [passed.kv for passed in node.path])
        start = node.depth
        run.node = self._cache.insert(node, ids[start : len(prompt)], self._forward.key_values(run, start, len(prompt)))
        run.node.pins += 1
        self._sample([run], logits[None])

    def _sample(self, runs: list[_Run], logits: Tensor) -> None:
        """One token for every run; ends those that are done."""
        tokens, logprobs = pick(logits, [run.draw() for run in runs])
        if not np.isfinite(logprobs).all():
            raise EngineError(f"{self.spec}: the model's log-probs aren't finite; its weights are broken")
        for run, token, logprob in zip(runs, tokens, logprobs, strict=True):
            run.append(token)
            run.logprobs.append(logprob)
            if token in self._stop_ids:
                self._finish(run, "stop")
            elif len(run.logprobs) == run.call.room or run.call.ticket.cancelled:
                self._finish(run, "length")

    def _finish(self, run: _Run, reason: Literal["stop", "length"]) -> None:
        prompt, computed = len(run.call.request.prompt_ids), run.length - 1
        if computed > prompt:
            kv = self._forward.key_values(run, prompt, computed)
            self._cache.insert(run.node, run.ids[prompt:computed], kv)
        run.node.pins -= 1
        self._forward.remove(run)
        sampled = run.ids[prompt : run.length].copy()
        run.call.ticket.deliver(Completion(sampled, np.array(run.logprobs, np.float32), reason, self._version))


def _load(source: str | Path, dtype: str, device: str) -> Any:
    if dtype not in _DTYPES:
        raise ConfigError(f"dtype {dtype!r}; valid: {', '.join(_DTYPES)}")
    try:
        with _no_progress_bar():
            model: Any = AutoModelForCausalLM.from_pretrained(str(source), dtype=_DTYPES[dtype], local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"no causal language model could be loaded from {source}: {error}") from error
    return model.to(device)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    enabled = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            enable_progress_bar()


def _context(model: Any, asked: int | None) -> int:
    own = getattr(model.config, "max_position_embeddings", None)
    if asked is None and own is None:
        raise ConfigError(f"a {model.config.model_type} model has no context length of its own; give max_model_len")
    return min(length for length in (asked, own) if length is not None)


def _stop_ids(model: Any) -> frozenset[int]:
    """The ids that the model's own generation config ends at."""
    ids = model.generation_config.eos_token_id if model.generation_config else None
    return frozenset([ids] if isinstance(ids, int) else ids or [])


def _forward(model: Any, max_batch: int, lean: bool) -> Forward:
    if lean and is_supported(model.config, model.dtype):
        return Qwen3Forward(model.config, model.state_dict(), max_batch, model.device)
    return HfForward(model)

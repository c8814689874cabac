"""The real harness programs in real sandboxes, against a scripted model that records what they send."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mixharness.harnesses import HarnessEnd, LaunchContext, get_harness
from mixharness.sandboxes import get_provider
from mixharness.sandboxes.base import ExecResult, SandboxLimits, SandboxSpec
from mixharness.sandboxes.image import build_image

pytestmark = pytest.mark.integration

Json = dict[str, Any]
RUNS = [
    ("agent-loop", "default"),
    ("claude-code", "bare"),
    ("claude-code", "default"),
    ("pi", "bare"),
    ("pi", "default"),
]
SHELL = {"agent-loop": "shell", "claude-code": "Bash", "pi": "bash"}
PATHS = {"anthropic": "/r/rollout/v1/messages", "chat": "/r/rollout/v1/chat/completions"}
NASTY = "/help -- @file --flag 'single' \"double\" `tick` $HOME $(date) \\n \\ \t\r\n żółć 😀 \u2028 <b>&amp;</b>\n  "
FIRST_BODIES: dict[tuple[str, str], Json] = {}
"""By harness and profile: what the first run of this process asked first."""
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@dataclass(frozen=True)
class Answer:
    """What the model says next: text, one shell command, an HTTP error, or silence."""

    text: str = ""
    command: str = ""
    status: int = 200
    error: Mapping[str, object] = field(default_factory=dict)
    silent: bool = False


class ScriptedModel:
    """Answers each call with the next line of a script, the last one for ever; streams where it is asked to."""

    def __init__(self, tool: str, script: Sequence[Answer]) -> None:
        self.tool, self.script = tool, script
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.bodies: list[Json] = []

    async def respond(self, request: Request) -> Response:
        self.paths.append(f"{request.method} {request.url.path}")
        self.keys.append(request.headers.get("x-api-key") or request.headers.get("authorization"))
        body = json.loads(await request.body())
        answer = self.script[min(len(self.bodies), len(self.script) - 1)]
        self.bodies.append(body)
        if answer.silent:
            await asyncio.sleep(3600)
        if answer.status != 200:
            return JSONResponse({"type": "error", "error": answer.error}, answer.status)
        events = anthropic_events if request.url.path.endswith("/messages") else chat_events
        if body.get("stream"):
            return StreamingResponse(events(body, answer, self.tool), media_type="text/event-stream")
        return JSONResponse(chat_answer(body, answer, self.tool))


def chat_answer(body: Json, answer: Answer, tool: str) -> Json:
    call = {"name": tool, "arguments": json.dumps({"command": answer.command})}
    calls = [{"id": "call_1", "type": "function", "function": call}] if answer.command else []
    message: Json = {"role": "assistant", "content": answer.text, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [choice],
        "usage": USAGE,
    }


def chat_events(body: Json, answer: Answer, tool: str) -> Iterator[str]:
    whole = chat_answer(body, answer, tool)
    choice = whole["choices"][0]
    delta = {**choice["message"]}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": 0, **delta["tool_calls"][0]}]
    frame = {**whole, "object": "chat.completion.chunk"}
    yield _data({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": choice["finish_reason"]}]})
    yield "data: [DONE]\n\n"


def anthropic_events(body: Json, answer: Answer, tool: str) -> Iterator[str]:
    blocks: list[tuple[Json, Json]] = []
    if answer.text:
        blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": answer.text}))
    if answer.command:
        start = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
        blocks.append((start, {"type": "input_json_delta", "partial_json": json.dumps({"command": answer.command})}))
    message = {"id": "m", "type": "message", "role": "assistant", "model": "policy", "content": [], "stop_reason": None}
    usage = {"input_tokens": 100, "output_tokens": 10}
    yield _event("message_start", message={**message, "stop_sequence": None, "usage": usage})
    for index, (start, delta) in enumerate(blocks):
        yield _event("content_block_start", index=index, content_block=start)
        yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    stop = {"stop_reason": "tool_use" if answer.command else "end_turn", "stop_sequence": None}
    yield _event("message_delta", delta=stop, usage={"output_tokens": 10})
    yield _event("message_stop")


def _event(kind: str, **fields: object) -> str:
    return f"event: {kind}\n{_data({'type': kind, **fields})}"


def _data(value: object) -> str:
    return f"data: {json.dumps(value)}\n\n"


@dataclass(frozen=True)
class Run:
    """What one run left."""

    end: HarnessEnd
    result: ExecResult
    model: ScriptedModel
    workspace: Path


@asynccontextmanager
async def served(model: ScriptedModel, sock: Any) -> AsyncIterator[None]:
    app = Starlette(routes=[Route("/{path:path}", model.respond, methods=["GET", "HEAD", "POST"])])
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error", timeout_graceful_shutdown=1))
    task = asyncio.create_task(server._serve([sock]))  # serve() would take over the test's signals
    try:
        yield
    finally:
        server.should_exit = True
        await task


async def run(
    kind: str,
    name: str,
    profile: str,
    script: Sequence[Answer],
    tmp_path: Path,
    *,
    prompt: str = "Do it.",
    **context: Any,
) -> Run:
    harness = get_harness(name)
    timeout_s = context.pop("timeout_s", 60.0)
    launch = harness.launch(
        LaunchContext(prompt, "http://127.0.0.1:8080/r/rollout", "secret-key", timeout_s=timeout_s, **context), profile
    )
    workspace, seed = tmp_path / "workspace", tmp_path / "seed"
    workspace.mkdir()
    for relative, data in launch.home_files.items():
        (seed / relative).parent.mkdir(parents=True, exist_ok=True)
        (seed / relative).write_bytes(data)
    seed.mkdir(exist_ok=True)
    limits = SandboxLimits(memory_mb=harness.memory_mb)
    spec = SandboxSpec(f"test-{name}", workspace, mounts=harness.mounts(), seed=seed, limits=limits)
    model = ScriptedModel(SHELL[name], script)
    async with await get_provider(kind).create(spec) as sandbox, served(model, await sandbox.listen(8080)):
        result = await sandbox.exec(launch.argv, env=launch.env, stdin=launch.stdin, timeout_s=timeout_s)
    return Run(harness.read_end(result), result, model, workspace)


def texts(message: Json) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """The image and the programs, made where they are missing."""
    build_image()
    for name, _ in RUNS:
        get_harness(name).install()
        assert get_harness(name).check().ok


@pytest.mark.parametrize("kind", ["docker", "bubblewrap"])
@pytest.mark.parametrize(("name", "profile"), RUNS)
async def test_two_step_task(kind: str, name: str, profile: str, tmp_path: Path) -> None:
    prompt = NASTY + "word\n" * 20_000 + NASTY
    devices = "tail -n +3 /proc/net/dev | cut -d: -f1 | xargs"
    command = f"(echo hello; id -u; {devices}) > out.txt; cat out.txt"
    script = [Answer("I will.", command), Answer("Done: out.txt.")]
    done = await run(kind, name, profile, script, tmp_path, prompt=prompt)

    assert done.end == HarnessEnd("completed", "Done: out.txt."), done.result
    assert (done.workspace / "out.txt").read_text() == "hello\n1000\nlo\n", "as uid 1000, with no way out but loopback"
    harness = get_harness(name)
    assert done.model.paths == [f"POST {PATHS[harness.dialect]}"] * 2, "two calls and nothing else"
    assert set(done.model.keys) <= {"secret-key", "Bearer secret-key"}
    first, second = (body["messages"] for body in done.model.bodies)
    asked = [texts(message) for message in first if message["role"] == "user"]
    assert asked[-1].endswith(prompt) and (asked[-1] == prompt or (name, profile) == ("claude-code", "default"))
    assert second[: len(first)] == first, "history is resent exactly"
    fixed = [{k: v for k, v in body.items() if k != "messages"} for body in done.model.bodies]
    assert fixed[0] == fixed[1], "so are tools, system prompt and sampling"
    assert "hello" in json.dumps(second[len(first) :]), "the tool's output went back"
    if profile == "bare" or name == "agent-loop":
        asked_now = {key: value for key, value in done.model.bodies[0].items() if key != "metadata"}
        assert not re.search(r"\d{4}-\d{2}-\d{2}", json.dumps([asked_now.get("system"), first])), "no date"
        assert FIRST_BODIES.setdefault((name, profile), asked_now) == asked_now, "the same in every run and sandbox"


@pytest.mark.parametrize(("name", "profile"), [("agent-loop", "default"), ("claude-code", "bare"), ("pi", "default")])
async def test_permanent_model_error(name: str, profile: str, tmp_path: Path) -> None:
    refusal = Answer(status=403, error={"type": "permission_error", "message": "rollout is over"})
    done = await run("bubblewrap", name, profile, [Answer("", "true"), refusal], tmp_path)
    assert done.end.status == "error"
    assert "rollout is over" in done.end.detail
    assert len(done.model.bodies) == 2, "not retried"


@pytest.mark.parametrize(("name", "profile"), [("agent-loop", "default"), ("claude-code", "bare"), ("pi", "default")])
async def test_context_overflow(name: str, profile: str, tmp_path: Path) -> None:
    message = "prompt is too long: 40000 tokens > 32768 maximum (maximum context length)"
    overflow = Answer(
        status=400, error={"type": "invalid_request_error", "code": "context_length_exceeded", "message": message}
    )
    done = await run("bubblewrap", name, profile, [Answer("", "true"), overflow], tmp_path)
    assert done.end.status == "context_overflow", done.result


@pytest.mark.parametrize(("name", "profile"), [("agent-loop", "default"), ("claude-code", "bare")])
async def test_own_turn_limit(name: str, profile: str, tmp_path: Path) -> None:
    done = await run("bubblewrap", name, profile, [Answer("", "true")], tmp_path, max_turns=3)
    assert done.end.status == "turn_limit", done.result
    assert len(done.model.bodies) == 3


async def test_hanging_model(tmp_path: Path) -> None:
    done = await run("bubblewrap", "claude-code", "bare", [Answer(silent=True)], tmp_path, timeout_s=4)
    assert done.result.timed_out
    assert done.end.status == "error"
    assert done.end.detail.startswith("killed at its time limit")


@pytest.mark.parametrize(("name", "profile"), [("agent-loop", "default"), ("claude-code", "bare"), ("pi", "default")])
async def test_transient_faults_are_retried(name: str, profile: str, tmp_path: Path) -> None:
    busy = Answer(status=429, error={"type": "rate_limit_error", "message": "slow down"})
    done = await run("bubblewrap", name, profile, [busy, Answer("Done.")], tmp_path)
    assert done.end == HarnessEnd("completed", "Done.")
    assert len(done.model.bodies) == 2
    assert done.model.bodies[0] == done.model.bodies[1], "with the same body"

"""Many sessions at once over one proxy: nothing is mixed up, nothing is lost."""

from __future__ import annotations

import asyncio
import random
import socket

import httpx

from mixharness.engines.base import Completion, GenerateRequest
from mixharness.engines.codec import ChatCodec
from mixharness.proxy import Proxy, Session

from .conftest import FunctionEngine, completion

SESSIONS, TURNS, BRANCHES = 12, 4, 2


async def test_many_sessions_are_never_mixed_up(codec: ChatCodec) -> None:
    rng = random.Random(0)

    async def generate(request: GenerateRequest) -> Completion:
        await asyncio.sleep(rng.random() / 100)
        last = request.structured["messages"][-1]["content"]  # type: ignore[index]
        return completion(codec, f"{request.session} heard {last}")

    proxy = Proxy()
    sock = socket.create_server(("127.0.0.1", 0), backlog=256)
    server = await proxy.serve(sock)
    sessions = [proxy.open_session(f"rollout-{n}", FunctionEngine(codec, generate)) for n in range(SESSIONS)]
    base = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=64)) as client:
        await asyncio.gather(*(_talk(client, base, s, branch) for s in sessions for branch in range(BRANCHES)))
    await server.aclose()
    for session in sessions:
        assert len(session.calls) == TURNS * BRANCHES
        assert [call.index for call in session.calls] == list(range(TURNS * BRANCHES))
        assert {call.status for call in session.calls} == {"answered"}
        assert sum(call.fork == "new" for call in session.calls) == BRANCHES
        for call in session.calls:
            assert call.text == f"{session.id} heard {call.messages[-1]['content']}"
            if call.extends is not None:
                parent = session.calls[call.extends]
                assert parent.messages[0] == call.messages[0]
                start = [*parent.prompt_ids.tolist(), *parent.completion_ids.tolist()]
                assert call.prompt_ids[: len(start)].tolist() == start


async def _talk(client: httpx.AsyncClient, base: str, session: Session, branch: int) -> None:
    history = [{"role": "user", "content": f"{session.id} branch {branch}"}]
    for turn in range(TURNS):
        body = {"model": "m", "messages": history}
        headers = {"authorization": f"Bearer {session.secret}"}
        reply = await client.post(f"{base}{session.path}/v1/chat/completions", json=body, headers=headers)
        message = reply.json()["choices"][0]["message"]
        assert message["content"] == f"{session.id} heard {history[-1]['content']}"
        history += [message, {"role": "user", "content": f"{session.id}/{branch}/{turn}"}]

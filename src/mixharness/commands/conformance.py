"""A short conformance check: one real rollout of two steps in a sandbox, answered by a script.

Cases: `installed`; `completes` (outcome completed); `works` (the file that the model asked for stands in the
workspace); `tokens` (every later prompt starts with an earlier prompt and its sampled answer, token by token);
`ledger` (every sampled token trains). Faults, compaction, subagents and MCP are not tried.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from mixharness.benchmarks.task import Grader, Task
from mixharness.engines.base import GenerateRequest
from mixharness.engines.codec import ChatCodec
from mixharness.engines.scripted import ScriptedEngine
from mixharness.engines.tiny import TINY_DIR
from mixharness.errors import MixharnessError
from mixharness.harnesses import get_harness
from mixharness.harnesses.base import Harness
from mixharness.limits import Limits, Outcome
from mixharness.rollout import Pair, Rollout, run_rollout
from mixharness.runtime import Runtime
from mixharness.sandboxes.base import SandboxProvider

CASES = ("installed", "completes", "works", "tokens", "ledger")
COMMAND = "printf done > answer.txt"
GRADER = """import json, pathlib
path = pathlib.Path("/workspace/answer.txt")
print(json.dumps({"file": float(path.is_file() and path.read_text() == "done")}))
"""
TASK = Task(
    id="two-steps",
    prompts=("Write the word done into answer.txt.",),
    files={"README.txt": b"An empty desk.\n"},
    grader=Grader(("python3", "-I", "/grader/main.py"), {"main.py": GRADER.encode()}),
    timeout_s=120.0,
)


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """One case's verdict; the note says what was seen when it failed."""

    status: Literal["pass", "fail", "n/a"]
    note: str = ""


def check_harness(name: str, runtime: Runtime, provider: SandboxProvider) -> dict[str, object]:
    """{version, cases: {case: {status, note}}} of one harness in its default profile.

    Raises:
        UnknownName: no such harness.
    """
    harness = get_harness(name)
    cases = {case: dataclasses.asdict(result) for case, result in _cases(harness, runtime, provider).items()}
    return {"version": harness.version, "cases": cases}


def _cases(harness: Harness, runtime: Runtime, provider: SandboxProvider) -> Mapping[str, CaseResult]:
    here = harness.check()
    if not here.ok:
        skipped = dict.fromkeys(CASES, CaseResult("n/a", "not installed"))
        return {**skipped, "installed": CaseResult("fail", f"{here.detail}. Fix: {here.fix}")}
    try:
        rollout = runtime.run(_play(harness, runtime, provider))
    except MixharnessError as error:
        skipped = dict.fromkeys(CASES, CaseResult("n/a", "no rollout"))
        return {**skipped, "installed": CaseResult("pass"), "completes": CaseResult("fail", str(error))}
    return {"installed": CaseResult("pass", here.detail), **judge(rollout)}


async def _play(harness: Harness, runtime: Runtime, provider: SandboxProvider) -> Rollout:
    engine = ScriptedEngine(answer, ChatCodec.load(TINY_DIR))
    pair = Pair(TASK, harness, benchmark="Conformance")
    return await run_rollout(
        pair, engine, proxy=runtime.proxy, provider=provider, limits=Limits(wall_s=120.0, calls=10)
    )


def answer(request: GenerateRequest) -> Mapping[str, Any]:
    """First a command for whichever tool takes one, then the last words; side calls without tools get words too."""
    structured: Mapping[str, Any] = request.structured
    tool = next((tool for tool in structured["tools"] if _takes_command(tool)), None)
    done = any(message["role"] == "tool" for message in structured["messages"])
    if tool is None or done:
        return {"content": "Done."}
    arguments = {"command": COMMAND} | ({"description": "Write the file"} if "description" in _fields(tool) else {})
    return {"content": "", "tool_calls": [{"name": tool["name"], "arguments": arguments}]}


def _fields(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = tool["parameters"].get("properties", {})
    return fields


def _takes_command(tool: Mapping[str, Any]) -> bool:
    return bool(_fields(tool).get("command", {}).get("type") == "string")


def judge(rollout: Rollout) -> dict[str, CaseResult]:
    """The cases that a finished rollout decides."""
    completed = rollout.outcome is Outcome.COMPLETED
    forked = [f"call {call.index}: {call.fork}" for call in rollout.tree.calls[1:] if call.extends is None]
    few = [] if len(rollout.tree) > 1 else ["the harness made fewer than two calls"]
    dropped = {reason: tokens for reason, tokens in rollout.ledger.dropped.items() if tokens}
    return {
        "completes": _verdict(completed, f"{rollout.outcome}: {rollout.detail}"),
        "works": _verdict(rollout.reward == 1.0, f"reward {rollout.reward}, parts {dict(rollout.reward_parts)}"),
        "tokens": _verdict(not (forked or few), ", ".join(forked + few)),
        "ledger": _verdict(not dropped and rollout.ledger.trained > 0, f"dropped {dropped}"),
    }


def _verdict(good: bool, note: str) -> CaseResult:
    return CaseResult("pass") if good else CaseResult("fail", note)

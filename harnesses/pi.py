"""pi, a small terminal agent on Node: four tools, OpenAI Chat (of the dialects it speaks).

Its JSON event stream goes to stdout and it exits 0 whatever happened, so the end is read from the last
assistant message. pi puts today's date and the working directory at the end of its system prompt; no option
of its own leaves them out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from mixharness.errors import ConfigError, UnknownName
from mixharness.harnesses.base import Abilities, HarnessEnd, Launch, LaunchContext
from mixharness.harnesses.npm import NODE_TARGET, NpmHarness, pinned_version
from mixharness.harnesses.output import Row, crashed, json_rows, tail
from mixharness.sandboxes.base import ExecResult
from mixharness.trees.call import Dialect

ARGV_BYTES = 100_000
"""Longest prompt given as an argument; Linux allows 128 KiB for one."""
BARE_SYSTEM = "You are a coding agent. Do the task with the tools, then reply with a short answer."
NO_EXTRAS = ("--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes", "--no-context-files")


class Pi(NpmHarness):
    """`pi -p --mode json`, offline, no session file, one provider: the proxy."""

    name: ClassVar[str] = "pi"
    package: ClassVar[str] = "@mariozechner/pi-coding-agent"
    version: ClassVar[str] = pinned_version("pi", "@mariozechner/pi-coding-agent")
    dialect: ClassVar[Dialect] = "chat"
    abilities: ClassVar[Abilities] = Abilities(compaction=True)
    profiles: ClassVar[Mapping[str, str]] = {
        "default": "the program as published",
        "bare": "--system-prompt of one line; the tools read, bash, edit, write as published",
    }
    memory_mb: ClassVar[int] = 768

    def launch(self, context: LaunchContext, profile: str = "default") -> Launch:
        if profile not in self.profiles:
            raise UnknownName(f"profile of {self.name}", profile, self.profiles)
        program = f"{self.target}/node_modules/{self.package}/dist/cli.js"
        argv = [NODE_TARGET, program, "--mode", "json", "--offline", "--no-session"]
        argv += ["--provider", "gym", "--model", context.model]
        argv += [*NO_EXTRAS, "--system-prompt", BARE_SYSTEM] if profile == "bare" else []
        words, stdin = _prompt(context.prompt)
        return Launch(
            [*argv, "-p", *words],
            {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
            stdin=stdin,
            home_files={".pi/agent/models.json": json.dumps(_models(context), indent=1).encode()},
        )

    def read_end(self, result: ExecResult) -> HarnessEnd:
        last = _last_answer(result.stdout)
        if last is None or result.exit_code != 0:
            return crashed(result)
        text = "".join(str(part.get("text", "")) for part in _parts(last) if part.get("type") == "text")
        error = str(last.get("errorMessage") or "")
        if last.get("stopReason") in ("error", "aborted"):
            overflow = "context" in error and ("length" in error or "window" in error)
            return HarnessEnd("context_overflow" if overflow else "error", text, f"{error}\n{tail(result)}")
        return HarnessEnd("completed", text)


def _models(context: LaunchContext) -> dict[str, Any]:
    model = {
        "id": context.model,
        "name": context.model,
        "reasoning": False,
        "input": ["text"],
        "contextWindow": context.context_tokens,
        "maxTokens": context.output_tokens,
    }
    provider = {
        "baseUrl": f"{context.base_url}/v1",
        "api": "openai-completions",
        "apiKey": context.api_key,
        "compat": {"supportsDeveloperRole": False, "supportsReasoningEffort": False, "supportsStore": False},
        "models": [model],
    }
    return {"providers": {"gym": provider}}


def _prompt(prompt: str) -> tuple[list[str], bytes | None]:
    """Arguments and stdin that pi joins to exactly this prompt.

    A leading "-" or "@" would be read as an option or a file, and stdin is trimmed at both ends; what was
    trimmed at the right comes back as the argument, which pi appends.
    """
    if not prompt.startswith(("-", "@")) and len(prompt.encode()) <= ARGV_BYTES:
        return [prompt], None
    if prompt != prompt.lstrip():
        raise ConfigError(f"pi can't take a prompt of over {ARGV_BYTES} bytes that starts with white space")
    body = prompt.rstrip()
    rest = prompt[len(body) :]
    return ([rest] if rest else []), body.encode()


def _last_answer(stdout: str) -> Row | None:
    ended = (row.get("message") for row in json_rows(stdout) if row.get("type") == "message_end")
    answers = [m for m in ended if isinstance(m, dict) and m.get("role") == "assistant"]
    return answers[-1] if answers else None


def _parts(message: Row) -> list[Row]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []

"""Claude Code, Anthropic's terminal agent: a native binary that speaks Anthropic Messages.

Its history is resent byte for byte only with the environment below (see docs/harnesses.md for what each one
keeps still). The prompt goes in on stdin, so that its length and first characters don't matter.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from mixharness.errors import UnknownName
from mixharness.harnesses.base import Abilities, HarnessEnd, Launch, LaunchContext, McpServer
from mixharness.harnesses.npm import NpmHarness, pinned_version
from mixharness.harnesses.output import crashed, last_json
from mixharness.sandboxes.base import ExecResult
from mixharness.trees.call import Dialect

QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "IS_SANDBOX": "1",
}
"""No look-ups outside, no update, and the sandbox accepted as one."""
EXACT_PREFIX = {
    "ENABLE_TOOL_SEARCH": "false",
    "DISABLE_PROMPT_CACHING": "1",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "0",
}
"""What else would change or decorate already sent messages between two calls."""
BARE = {"MAX_THINKING_TOKENS": "0"}


class ClaudeCode(NpmHarness):
    """`claude -p`, permissions skipped, one JSON result on stdout."""

    name: ClassVar[str] = "claude-code"
    package: ClassVar[str] = "@anthropic-ai/claude-code"
    version: ClassVar[str] = pinned_version("claude-code", "@anthropic-ai/claude-code")
    needs_node: ClassVar[bool] = False
    dialect: ClassVar[Dialect] = "anthropic"
    abilities: ClassVar[Abilities] = Abilities(mcp=True, subagents=True, compaction=True)
    profiles: ClassVar[Mapping[str, str]] = {
        "default": "the program as published",
        "bare": "--bare, no thinking: a 200-character system prompt and three tools",
    }
    memory_mb: ClassVar[int] = 1024

    @property
    def binary(self) -> str:
        """The native program inside the sandbox, chosen for this machine."""
        arch = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        return f"{self.target}/node_modules/@anthropic-ai/claude-code-linux-{arch}/claude"

    def launch(self, context: LaunchContext, profile: str = "default") -> Launch:
        if profile not in self.profiles:
            raise UnknownName(f"profile of {self.name}", profile, self.profiles)
        bare = profile == "bare"
        env = {
            **QUIET,
            **EXACT_PREFIX,
            **(BARE if bare else {}),
            "ANTHROPIC_BASE_URL": context.base_url,
            "ANTHROPIC_API_KEY": context.api_key,
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(context.output_tokens),
        }
        argv = [self.binary, "-p", "--dangerously-skip-permissions", "--output-format", "json"]
        argv += ["--max-turns", str(context.max_turns), "--model", context.model, "--no-session-persistence"]
        argv += ["--bare"] if bare else []
        argv += _mcp(context.mcp_servers)
        return Launch(argv, env, stdin=context.prompt.encode())

    def read_end(self, result: ExecResult) -> HarnessEnd:
        end = last_json(result.stdout, lambda row: row.get("type") == "result")
        if end is None:
            return crashed(result)
        text = str(end.get("result") or "")
        if end.get("subtype") == "error_max_turns":
            return HarnessEnd("turn_limit", text)
        if "Prompt is too long" in text and end.get("is_error"):
            return HarnessEnd("context_overflow", text)
        if end.get("is_error") or result.exit_code != 0:
            return HarnessEnd("error", text, f"exit code {result.exit_code}, {end.get('subtype')}: {text[-2000:]}")
        return HarnessEnd("completed", text)


def _mcp(servers: Sequence[McpServer]) -> list[str]:
    if not servers:
        return []
    return ["--mcp-config", json.dumps({"mcpServers": {s.name: _server(s) for s in servers}}), "--strict-mcp-config"]


def _server(server: McpServer) -> dict[str, Any]:
    if server.url:
        return {"type": "http", "url": server.url}
    return {"command": server.argv[0], "args": list(server.argv[1:]), "env": dict(server.env)}

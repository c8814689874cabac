"""Recorded sessions, run again through dialect, splicing, tree and ledger, without a harness or a model.

A recording is a .jsonl or .jsonl.gz file with one model call a line: {"i", "t", "method", "path", "headers", "request",
"response": {"status": 200 | 4xx | 5xx | "reset" | "cut", "message": {"content", "reasoning", "tool_calls"} | null}}.
Answers become the ids that a policy would have had to sample for them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from mixharness.engines.base import Engine, Sampling
from mixharness.engines.codec import ChatCodec
from mixharness.engines.scripted import ScriptedEngine
from mixharness.engines.tiny import TINY_DIR
from mixharness.errors import ConfigError
from mixharness.limits import Limits
from mixharness.proxy.dialects import UnsupportedDialect, dialect_for
from mixharness.proxy.session import Session
from mixharness.proxy.wire import BadRequest
from mixharness.trees.call import ModelCall
from mixharness.trees.select import TreeOptions, segments
from mixharness.trees.tree import CallTree

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Replay:
    """A session, run again.

    Attributes:
        name: the recording's.
        tree: its model calls.
        lines: by call of the tree, the number of its line in the recording.
        others: line number → why it is no model call.
    """

    name: str
    tree: CallTree
    lines: tuple[int, ...]
    others: Mapping[int, str]


def replay_session(
    path: str | Path, codec: ChatCodec | None = None, options: TreeOptions | None = None
) -> dict[str, Any]:
    """One recording's report, as `mixharness replay --json` prints it.

    Returns:
        {session, calls: [{i, role, kind, of, reason, confidence, extends, fork}], main_trajectories (segments of the
        main agent), trajectories [{kind, calls, tokens}], ledger}; {session, unsupported} for a dialect that the
        proxy doesn't speak.

    Raises:
        ConfigError: no such file, or a line that is no recorded call.
    """
    path = Path(path)
    try:
        session = replay(path, codec)
    except UnsupportedDialect as error:
        return {"session": session_name(path), "unsupported": str(error)}
    return report(session, options or TreeOptions())


def replay(path: Path, codec: ChatCodec | None = None) -> Replay:
    """Runs a recording through dialect and splicing.

    Raises:
        ConfigError: no such file, or a line that is no recorded call.
        UnsupportedDialect: a call in a dialect that the proxy doesn't speak.
    """
    session = Session(
        session_name(path),
        _engine(codec),
        limits=Limits(),
        sampling=Sampling(),
        model="recorded",
        secret="",
    )
    lines: list[int] = []
    others: dict[int, str] = {}
    for line in _read(path):
        if line["request"] is None:
            others[line["i"]] = f"no model call: {line['method']} {line['path']} without a body"
            continue
        _repeat(session, line, path)
        lines.append(line["i"])
    return Replay(session.id, CallTree(session.calls), tuple(lines), others)


def report(session: Replay, options: TreeOptions) -> dict[str, Any]:
    """The session's labels, trajectories and ledger as plain data."""
    tree = session.tree
    paths = tree.trajectories(options)
    calls = [_call(session, call) for call in tree.calls]
    calls += [_other(number, why) for number, why in session.others.items()]
    return {
        "session": session.name,
        "calls": sorted(calls, key=lambda call: int(call["i"])),
        "main_trajectories": sum(segment.role == "main" for segment in segments(tree)),
        "trajectories": [
            {"kind": p.kind, "calls": [session.lines[c] for c in p.calls], "tokens": len(p.ids)} for p in paths
        ],
        "ledger": tree.ledger(options).as_dict(),
    }


def session_name(path: Path) -> str:
    """The file's name without its endings."""
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _call(session: Replay, call: ModelCall) -> dict[str, Any]:
    label = session.tree.labels[call.index]
    of, extends = (None if other is None else session.lines[other] for other in (label.of, call.extends))
    return {
        "i": session.lines[call.index],
        "role": label.role,
        "kind": label.kind,
        "of": of,
        "reason": label.reason,
        "confidence": label.confidence,
        "extends": extends,
        "fork": call.fork,
    }


def _other(number: int, why: str) -> dict[str, Any]:
    nothing = {"of": None, "reason": why, "confidence": 1.0, "extends": None, "fork": None}
    return {"i": number, "role": "other", "kind": "new"} | nothing


def _engine(codec: ChatCodec | None) -> Engine:
    return ScriptedEngine((), codec or ChatCodec.load(TINY_DIR))


def _repeat(session: Session, line: Line, path: Path) -> ModelCall:
    dialect_for(line["path"])
    try:
        return session.replay(line["path"], line["headers"], line["request"], line["response"], at=float(line["t"]))
    except BadRequest as error:
        raise ConfigError(f"{path}, call {line['i']}: {error}") from error


def _read(path: Path) -> Iterator[Line]:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from error
    for number, text in enumerate(data.splitlines(), 1):
        if text.strip():
            yield _checked(text, f"{path}, line {number}")


def _checked(text: bytes, where: str) -> Line:
    try:
        line = orjson.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON: {error}") from error
    missing = {"i", "t", "method", "path", "headers", "request", "response"} - set(
        line if isinstance(line, dict) else ()
    )
    if missing:
        raise ConfigError(f"{where}: no recorded call, it lacks {', '.join(sorted(missing))}")
    return dict(line)

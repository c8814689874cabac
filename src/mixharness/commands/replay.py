"""`mixharness replay SESSION.jsonl.gz…`: {sessions: [{session, calls, main_trajectories, ledger}]}."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Group

from mixharness.commands.report import Report, progress, table
from mixharness.errors import ConfigError

COLUMNS = ("i", "role", "kind", "of", "extends", "fork", "reason", "confidence")


def configure(parser: argparse.ArgumentParser) -> None:
    """Recordings."""
    parser.add_argument("sessions", metavar="SESSION", nargs="+", type=Path, help="a recording, .jsonl or .jsonl.gz")
    parser.add_argument("--tokenizer", metavar="DIR", help="whose template is used; the tiny policy's by default")


def run(args: argparse.Namespace) -> Report:
    """Runs each recording through the proxy's dialects, splicing, tree and ledger."""
    missing = [str(path) for path in args.sessions if not path.is_file()]
    if missing:
        raise ConfigError(f"no such recording: {', '.join(missing)}")
    from mixharness.engines.codec import ChatCodec
    from mixharness.engines.tiny import TINY_DIR
    from mixharness.replay import replay_session

    codec, reports = ChatCodec.load(args.tokenizer or TINY_DIR), []
    with progress("replaying", len(args.sessions)) as step:
        for path in args.sessions:
            reports.append(replay_session(path, codec))
            step()
    return Report({"sessions": reports}, Group(*(view for report in reports for view in _views(report))))


def _views(report: Mapping[str, Any]) -> Iterator[Any]:
    if "unsupported" in report:
        yield f"{report['session']}: {report['unsupported']}\n"
        return
    yield table(report["session"], COLUMNS, ([call.get(c) for c in COLUMNS] for call in report["calls"]))
    ledger = report["ledger"]
    dropped = ", ".join(f"{tokens} {reason}" for reason, tokens in ledger["dropped"].items()) or "nothing"
    yield (
        f"main trajectories: {report['main_trajectories']}; tokens sampled {ledger['sampled']}, "
        f"trained {ledger['trained']}, dropped: {dropped}\n"
    )

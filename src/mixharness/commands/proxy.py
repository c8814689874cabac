"""`mixharness proxy --engine E`: the proxy alone, on loopback. Prints {"url", "secret"}, then serves until Ctrl-C.

Point any harness at the URL (its dialect's paths hang below it) with the secret as API key.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mixharness.commands.pairs import read_limits
from mixharness.commands.report import Report
from mixharness.errors import ConfigError

if TYPE_CHECKING:
    from mixharness.engines.base import Engine
    from mixharness.limits import Limits

UNLIMITED = ("calls=1000000000",)


def configure(parser: argparse.ArgumentParser) -> None:
    """What answers, and where."""
    parser.add_argument("--engine", required=True, help="scripted:FILE, transformers:DIR or transformers:tiny")
    parser.add_argument("--tokenizer", metavar="DIR", help="for a scripted engine; the tiny policy's by default")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0, the default: any that is free")
    parser.add_argument("--session", default="default", help="the URL's last part")
    parser.add_argument("--secret", help="the API key; drawn at random by default")
    parser.add_argument("--record", metavar="DIR", type=Path, help="gets one JSON line per call")
    parser.add_argument("--limits", metavar="NAME=N", nargs="+", default=[], help="calls, sampled_tokens, …")


def run(args: argparse.Namespace) -> Report:
    """Serves until SIGINT or SIGTERM."""
    from mixharness.engines import make_engine

    limits = read_limits([*UNLIMITED, *args.limits])
    engine = make_engine(args.engine, args.tokenizer)
    asyncio.run(_serve(args, engine, limits, _bind(args.host, args.port)))
    return Report(None)


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=128)
    except OSError as error:
        raise ConfigError(f"can't listen on {host}:{port}: {error.strerror}; choose another --port") from error


async def _serve(args: argparse.Namespace, engine: Engine, limits: Limits, sock: socket.socket) -> None:
    from mixharness.proxy import Proxy

    proxy = Proxy(record=args.record)
    session = proxy.open_session(args.session, engine, limits=limits, secret=args.secret)
    server = await proxy.serve(sock)
    host, port = sock.getsockname()[:2]
    print(
        json.dumps({"url": f"http://{host}:{port}{session.path}", "secret": session.secret}),
        file=args.stdout,
        flush=True,
    )
    print("serving; Ctrl-C ends it", file=sys.stderr)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.aclose()
    await engine.aclose()
    print(f"{len(session.calls)} calls served", file=sys.stderr)

"""The serving boundary: harnesses speak their own dialect here, engines see token ids and nothing else.

    app.py        routing, keys, error shapes            exchange.py  one HTTP exchange over ASGI
    session.py    one rollout: keys, endings, calls' life  answering.py one call: wait, ping, deliver
    calls.py      snapshots and their version             budget.py    what may still be used
    splice.py     prompt ids before sampling              sampling.py  dispatch, retries, checks
    dialects/     one file per wire format                server.py    uvicorn on a given socket
    gate.py       drains for weight updates               record.py    calls as JSON lines; replay.py back

Imports engines, trees and plain data only.
"""

from __future__ import annotations

from mixharness.proxy.app import Proxy
from mixharness.proxy.server import Server
from mixharness.proxy.session import Session

__all__ = ["Proxy", "Server", "Session"]

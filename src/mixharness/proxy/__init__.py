"""The serving boundary: harnesses speak their own dialect here, engines see token ids and nothing else.

    app.py        routing, keys, error shapes            exchange.py  one HTTP exchange over ASGI
    session.py    one rollout's calls, limits, end        answering.py one call: wait, ping, deliver
    splice.py     prompt ids before sampling              sampling.py  dispatch, retries, checks
    dialects/     one file per wire format                server.py    uvicorn on a given socket
    gate.py       drains for weight updates               record.py    calls as JSON lines

Imports engines, trees and plain data only.
"""

from __future__ import annotations

from mixharness.proxy.app import Proxy
from mixharness.proxy.server import Server
from mixharness.proxy.session import Session

__all__ = ["Proxy", "Server", "Session"]

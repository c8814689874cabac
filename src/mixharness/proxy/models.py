"""GET /v1/models and /v1/models/<id>: one listing that both the OpenAI and the Anthropic shape can be read from."""

from __future__ import annotations

from typing import Any

from mixharness.proxy.session import Session

_CREATED = 1_735_689_600
_CREATED_AT = "2025-01-01T00:00:00Z"


def listing(session: Session, path: str) -> dict[str, Any] | None:
    """The body for a GET below the session's URL; None: no such path."""
    plain = path.removeprefix("/v1")
    if plain.rstrip("/") == "/models":
        model = _model(session, session.model)
        return {"object": "list", "data": [model], "first_id": model["id"], "last_id": model["id"], "has_more": False}
    return _model(session, plain.removeprefix("/models/")) if plain.startswith("/models/") else None


def _model(session: Session, name: str) -> dict[str, Any]:
    """Any name is the policy: a harness may insist on one of its own."""
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": _CREATED,
        "created_at": _CREATED_AT,
        "owned_by": "mixharness",
        "display_name": name,
        "max_input_tokens": session.budget.context_tokens,
        "max_tokens": session.budget.limits.output_tokens,
        "max_model_len": session.budget.context_tokens,
        "context_window": session.budget.context_tokens,
    }

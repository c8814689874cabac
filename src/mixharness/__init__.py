"""A Gymnasium suite and training gym for LLM agents that live inside real harnesses."""

from __future__ import annotations

from mixharness._version import __version__

__all__ = ["__version__"]

"""A Gymnasium suite and training gym for LLM agents that live inside real harnesses.

Importing it registers an env for every (task, harness) pair of every benchmark that is located here.
"""

from __future__ import annotations

from mixharness._version import __version__
from mixharness.envs.registration import register_all

__all__ = ["__version__"]

register_all()

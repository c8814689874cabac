"""The shipped tiny policy: about a million parameters, its own tokenizer, `transformers:tiny` by spec."""

from __future__ import annotations

from pathlib import Path

TINY_DIR = Path(__file__).parent / "data"
"""A directory in the form that transformers loads: tokenizer, config, safetensors."""

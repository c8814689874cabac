"""Where mixharness keeps what it installs: harnesses, node, the sandbox image, fetched benchmarks."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$MIXHARNESS_HOME`, or `~/.cache/mixharness`: shared by every checkout of one user."""
    return Path(os.environ.get("MIXHARNESS_HOME") or Path.home() / ".cache" / "mixharness")


def harness_dir(name: str, version: str) -> Path:
    """Where one pinned harness version is installed."""
    return home() / "harnesses" / name / version


def image_dir() -> Path:
    """The sandbox image: its root filesystem and stamp."""
    return home() / "image"

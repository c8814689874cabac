"""Checkpoints: `checkpoints/step-N/` holds the model as transformers saves it, usable as an engine, and `trainer.pt`.

A checkpoint appears whole or not at all: it is written aside, flushed, and renamed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

_NAME = re.compile(r"step-(\d+)")
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|gguf)|(generation_)?config\.json|.*\.index\.json")


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        directory: holds them; made when needed.
        keep: how many to keep, latest first; 0: all.
        tokenizer: directory whose tokenizer files go into each checkpoint, or None.
    """

    directory: Path
    keep: int = 2
    tokenizer: Path | None = None

    def steps(self) -> list[int]:
        """Steps that were saved whole, in order."""
        names = (_NAME.fullmatch(path.name) for path in self.directory.glob("step-*"))
        return sorted(int(match[1]) for match in names if match)

    def path(self, step: int) -> Path:
        """Where a step's checkpoint is, or would be."""
        return self.directory / f"step-{step:06d}"

    def save(self, step: int, model: PreTrainedModel, state: Mapping[str, Any]) -> Path:
        """Saves model and state after `step` steps; removes older ones beyond `keep`.

        Raises:
            OSError: the disk is full, or refuses; earlier checkpoints are untouched.
        """
        target, scratch = self.path(step), self.directory / f".tmp-{step:06d}"
        for leftover in self.directory.glob(".tmp-*"):
            shutil.rmtree(leftover)
        scratch.mkdir(parents=True)
        model.save_pretrained(scratch)
        self._copy_tokenizer(scratch)
        torch.save({**state, "step": step, "rng": _rng_state()}, scratch / "trainer.pt")
        for path in [*scratch.iterdir(), scratch]:
            _flush(path)
        if target.exists():
            shutil.rmtree(target)
        os.replace(scratch, target)
        _flush(self.directory)
        for old in self.steps()[: -self.keep] if self.keep else []:
            shutil.rmtree(self.path(old))
        return target

    def load(self, step: int) -> dict[str, Any]:
        """The state saved after `step` steps; random number generators go on from where they were."""
        state: dict[str, Any] = torch.load(self.path(step) / "trainer.pt", weights_only=False)
        random.setstate(state["rng"]["python"])
        np.random.set_state(state["rng"]["numpy"])
        torch.set_rng_state(state["rng"]["torch"])
        return state

    def _copy_tokenizer(self, target: Path) -> None:
        for path in self.tokenizer.iterdir() if self.tokenizer else ():
            if path.is_file() and not _WEIGHTS.fullmatch(path.name):
                shutil.copyfile(path, target / path.name)


def _rng_state() -> dict[str, Any]:
    return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

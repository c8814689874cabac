"""What the Hydra commands, train and evaluate, share: their arguments, and errors of a configuration as ConfigError."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from mixharness.errors import ConfigError


def accept_overrides(parser: argparse.ArgumentParser, name: str) -> None:
    """Everything that isn't an option of ours is passed on to Hydra, as `args.overrides`."""
    parser.usage = f"mixharness {name} [-h] [--json] [--debug] [-m] [OVERRIDE ...]"
    parser.epilog = f"OVERRIDE is Hydra's group=choice or key=value, as explained in conf/{name}.yaml; -m runs a sweep."
    parser.set_defaults(overrides=[])


@contextmanager
def configuration(name: str) -> Iterator[None]:
    """A value that turns out missing or of the wrong type only when it is used.

    Raises:
        ConfigError: instead of OmegaConf's error.
    """
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except OmegaConfBaseException as error:
        raise ConfigError(f"{name} configuration: {error}") from error

"""`mixharness demo`: the three harnesses before and after training; runs/demo/{summary.json, demo.png}."""

from __future__ import annotations

import argparse

from mixharness.commands.report import Report


def configure(parser: argparse.ArgumentParser) -> None:
    """Hydra-style overrides are passed on."""
    parser.set_defaults(overrides=[])


def run(args: argparse.Namespace) -> Report:
    """Runs the demonstration."""
    from mixharness.algos.demo import main

    return Report(main(args.overrides))

"""`mixharness demo`: summary.json. The shipped policy, through real harnesses, on held-out tasks before and after GRPO.

Writes runs/demo/{summary.json, demo.png}; a killed demo goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mixharness.commands.report import Report


def configure(parser: argparse.ArgumentParser) -> None:
    """Where, how much, and Hydra overrides of experiment=quickstart."""
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("runs/demo"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, nargs="+", help="one whole demo for each, in DIR/seedN; for results pages")
    parser.add_argument("--repeats", type=int, default=6, help="held-out episodes per pair at T=1")
    parser.add_argument("--greedy", type=int, default=1, help="held-out episodes per pair at T=0")
    parser.add_argument("changes", metavar="OVERRIDE", nargs="*", help="such as trainer.steps=4")


def run(args: argparse.Namespace) -> Report:
    """Runs the demonstration; its tables are shown as they come."""
    from rich.console import Console

    from mixharness.algos.demo import run_demo, run_seeds

    console = Console(stderr=args.json)
    if args.seeds:
        return Report(run_seeds(args.out, args.seeds, args.repeats, args.greedy, args.changes, console))
    return Report(run_demo(args.out, args.seed, args.repeats, args.greedy, args.changes, console))

"""`mixharness tasks BENCH [--path DIR]`: {benchmark, digest, tasks: [{id, category, grading, prompt_chars, floor}]}."""

from __future__ import annotations

import argparse

from mixharness.commands.report import Report


def configure(parser: argparse.ArgumentParser) -> None:
    """The benchmark and where its files are."""
    parser.add_argument("benchmark", metavar="BENCH")
    parser.add_argument("--path", metavar="DIR", help="the benchmark's files, when they aren't found by themselves")


def run(args: argparse.Namespace) -> Report:
    """Lists every task."""
    from mixharness.benchmarks import get_benchmark
    from mixharness.benchmarks.documents import tasks_document, tasks_table

    document = tasks_document(get_benchmark(args.benchmark, args.path))
    return Report(document, tasks_table(document))

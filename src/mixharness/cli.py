"""The `mixharness` command: finds the subcommand, prints what it returns, turns errors into one line.

A subcommand is one file in `commands/` with `configure(parser)` and `run(args) -> Report`; only the chosen one is
imported, so that help stays fast. With `--json`, stdout carries one JSON document and nothing else: prints of
libraries and child processes go to stderr.

Exit codes: what the report says (0 by default); 2 for wrong input; 1 for a failure of ours; 130 when interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

import mixharness
from mixharness.commands import COMMANDS
from mixharness.commands.report import Report, reserved_stdout, show, write_json
from mixharness.errors import ConfigError, MixharnessError, UnknownName


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        args, module = _parse(argv)
    except UnknownName as error:
        return _fail(error, 2)
    with reserved_stdout(args.json) as out:
        try:
            args.stdout = out
            report: Report = module.run(args)
            if args.json and report.document is not None:
                write_json(report.document, out)
            elif not args.json:
                show(report.view)
            return report.exit_code
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            if args.debug:
                traceback.print_exc()
            if args.json:
                write_json({"error": str(error) or type(error).__name__}, out)
            return _fail(error, 2 if isinstance(error, ConfigError) else 1)


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, ModuleType]:
    """The chosen command's arguments and module; argparse itself exits on help and on wrong options."""
    parser = argparse.ArgumentParser(prog="mixharness", description=mixharness.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"mixharness {mixharness.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS:
        raise UnknownName("command", chosen, COMMANDS)
    module = ModuleType("")
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name == chosen:
            module = importlib.import_module(f"mixharness.commands.{name}")
            module.configure(sub)
            _add_common(sub)
    args, rest = parser.parse_known_args(argv)
    if hasattr(args, "overrides"):
        args.overrides = rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return args, module


def _add_common(parser: argparse.ArgumentParser) -> None:
    leaves = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            leaves = list(action.choices.values())
    for leaf in leaves:
        leaf.add_argument("--json", action="store_true", help="print one JSON document on stdout and nothing else")
        leaf.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _fail(error: Exception, code: int) -> int:
    kind = "" if isinstance(error, MixharnessError) else f"unexpected {type(error).__name__}: "
    hint = "" if isinstance(error, MixharnessError) else " (--debug shows where)"
    print(f"mixharness: {kind}{' '.join(str(error).split())}{hint}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

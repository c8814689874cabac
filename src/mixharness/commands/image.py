"""`mixharness image build`: {stamp, rootfs, tag, built, seconds}."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from mixharness.commands.report import Report


def configure(parser: argparse.ArgumentParser) -> None:
    """`build`, and how."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="make the sandbox image, or find it made", allow_abbrev=False)
    build.add_argument("--method", choices=("auto", "harvest", "dockerfile"), default="auto")
    build.add_argument("--force", action="store_true", help="build even when nothing has changed")


def run(args: argparse.Namespace) -> Report:
    """Builds the image."""
    from mixharness.sandboxes.image import build_image

    info = build_image(args.force, args.method, progress=lambda line: print(line, file=sys.stderr))
    verb = f"built in {info.seconds:.0f} s" if info.built else "is there already"
    view = f"sandbox image {info.stamp} {verb}: {info.rootfs}" + (f", {info.tag}" if info.tag else "")
    return Report({**dataclasses.asdict(info), "rootfs": str(info.rootfs)}, view)

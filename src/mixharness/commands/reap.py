"""`mixharness reap`: {docker: [container], bubblewrap: [control group]}: removed, since their owner is gone."""

from __future__ import annotations

import argparse

from mixharness.commands.report import Report


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(args: argparse.Namespace) -> Report:
    """Removes what a crashed or killed process left; sandboxes of living processes stay."""
    from mixharness.sandboxes.bubblewrap import reap_bubblewraps
    from mixharness.sandboxes.daemon import DaemonMissing
    from mixharness.sandboxes.docker import reap_containers

    removed = {"docker": [], "bubblewrap": reap_bubblewraps()}
    note = ""
    try:
        removed["docker"] = reap_containers()
    except DaemonMissing as error:
        note = f"; {error}"
    names = [f"{kind} {name}" for kind, found in removed.items() for name in found]
    return Report(removed, "\n".join(names or ["nothing was left behind"]) + note)

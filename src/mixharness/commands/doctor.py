"""`mixharness doctor`: {ok, findings: [{area, name, ok, required, detail, fix}]}; exit 1 when one required fails."""

from __future__ import annotations

import argparse

from rich.text import Text

from mixharness.commands.report import Report, table


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(args: argparse.Namespace) -> Report:
    """Examines this machine."""
    from mixharness.doctor import examine, healthy

    findings = examine()
    ok = healthy(findings)
    rows = []
    for finding in findings:
        check = finding.check
        sign = (
            Text("ok", "green") if check.ok else Text("FAILS", "red") if finding.required else Text("absent", "yellow")
        )
        rows.append((sign, finding.area, check.name, check.detail, "" if check.ok else check.fix))
    document = {"ok": ok, "findings": [finding.as_dict() for finding in findings]}
    return Report(document, table("", ("", "area", "name", "detail", "fix"), rows), exit_code=0 if ok else 1)

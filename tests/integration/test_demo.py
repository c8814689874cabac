"""The demo, small: one harness, one step, in real sandboxes; and that it goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from mixharness.algos.demo import markdown, run_demo
from mixharness.errors import ConfigError

pytestmark = pytest.mark.integration
SMALL = ["harness=[agent_loop]", "sandbox=bubblewrap", "trainer.steps=1", "trainer.pairs=2", "trainer.group_size=4"]


@pytest.mark.timeout(300)
def test_a_small_demo_is_whole_and_resumes(tmp_path: Path) -> None:
    console = Console(record=True, width=160)
    summary = run_demo(tmp_path, 0, 1, 1, SMALL, console)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert {"pairs", "before", "after", "ci95", "ledger", "wall_s"} <= set(summary)
    assert len(summary["pairs"]) == 12 and list(summary["harnesses"]) == ["agent-loop"]
    ledger = summary["ledger"]
    assert ledger["sampled"] == ledger["trained"] + sum(ledger["dropped"].values()) > 0
    assert summary["overall"]["before"]["invalid"] == summary["overall"]["after"]["invalid"] == 0
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "agent-loop" in console.export_text()
    assert "| 0 | all |" in markdown([summary])
    played = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rollout.json")}
    again = run_demo(tmp_path, 0, 1, 1, SMALL, console)
    assert again["pairs"] == summary["pairs"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rollout.json")} == played


def test_a_demo_that_compares_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        run_demo(tmp_path, 0, 0, 1, [], Console())

"""What a run leaves on disk and shows on a terminal: loggers, checkpoints, the live table."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tests.algos.gym import FakeCollector, FakeEngine, make_pair
from tests.algos.models import tiny

from mixharness.algos.checkpoint import Checkpoints
from mixharness.algos.loggers import FileLogger, Wandb
from mixharness.algos.progress import LiveProgress


def test_a_metric_that_comes_late_gets_its_column(tmp_path: Path) -> None:
    logger = FileLogger(tmp_path)
    logger.log(0, {"reward/pi": 0.5})
    logger.log(1, {"reward/agent-loop": 0.25})
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"step": "0", "reward/pi": "0.5", "reward/agent-loop": ""},
        {"step": "1", "reward/pi": "", "reward/agent-loop": "0.25"},
    ]


def test_rows_of_a_killed_run_are_dropped_with_its_half_line(tmp_path: Path) -> None:
    logger = FileLogger(tmp_path)
    for step in range(3):
        logger.log(step, {"reward/mean": float(step)})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "reward/me')
    again = FileLogger(tmp_path, start=2)
    assert [row["step"] for row in again.rows] == [0, 1]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2


def test_wandb_writes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = Wandb("test", tmp_path)
    logger.log(0, {"reward/mean": 0.5})
    logger.close()
    (file,) = tmp_path.rglob("offline-run-*/*.wandb")
    deadline = time.monotonic() + 30  # wandb's own process writes it
    while b"reward/mean" not in file.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert b"reward/mean" in file.read_bytes()


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, model = Checkpoints(tmp_path), tiny()
    checkpoints.save(1, model, {"value": 1})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoints.save(2, model, {"value": 2})
    assert checkpoints.steps() == [1]
    assert checkpoints.load(1)["value"] == 1
    checkpoints.save(3, model, {"value": 3})
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-000001", "step-000003"]


def test_old_checkpoints_go_and_tokenizers_come_along(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("tokenizer.json", "chat_template.jinja", "model.safetensors", "config.json"):
        (source / name).write_text(name)
    checkpoints = Checkpoints(tmp_path / "run", keep=2, tokenizer=source)
    for step in range(4):
        checkpoints.save(step, tiny(), {})
    assert checkpoints.steps() == [2, 3]
    saved = checkpoints.path(3)
    assert (saved / "tokenizer.json").read_text() == "tokenizer.json"
    assert (saved / "config.json").read_text() != "config.json"


def test_random_numbers_go_on_where_they_were(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, tiny(), {})
    expected = torch.rand(3)
    torch.manual_seed(99)
    checkpoints.load(0)
    assert torch.equal(torch.rand(3), expected)


async def test_the_live_table_shows_each_harness() -> None:
    from mixharness.algos.groups import GroupRunner
    from mixharness.algos.schedule import Draw

    out = io.StringIO()
    with LiveProgress(Console(file=out, force_terminal=True, width=200)) as progress:
        progress.collecting(0, 5, 4)
        runner = GroupRunner(FakeCollector(FakeEngine(tiny())), make_pair, size=2)
        await runner.run([Draw("t", "pi", 0), Draw("t", "claude-code:bare", 1)], 0, progress.rollout)
        assert progress.done == 4
        progress.step(0, {"reward/mean": 0.5, "reward/pi": 0.75, "tokens/trained": 24.0, "mismatch/kl": 1e-7})
    text = out.getvalue()
    assert "step 1/5: 4/4 rollouts" in text
    assert all(word in text for word in ("claude-code:bare", "0.75", "24", "1e-07"))

"""docs/engines.md tells the truth: its Python runs, its script is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mixharness.engines.codec import ChatCodec
from mixharness.engines.scripted import ScriptedEngine
from mixharness.engines.tiny import TINY_DIR

TEXT = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()


def block(language: str) -> str:
    [code] = re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)
    return str(code)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("python"), "engines.md", "exec"), {"__name__": "example"})
    assert "'role': 'assistant'" in capsys.readouterr().out


def test_the_script_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(block("json"))
    engine = ScriptedEngine(tmp_path / "a.jsonl", ChatCodec.load(TINY_DIR))
    assert len(engine._answers) == 4

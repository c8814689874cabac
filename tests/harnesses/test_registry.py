"""Looking harnesses up: own files, third-party entry points, wrong names."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from mixharness import harnesses
from mixharness.errors import ConfigError, UnknownName
from mixharness.harnesses import Harness, get_harness, harness_names


def third_party(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    points = EntryPoints([EntryPoint(name, value, harnesses.ENTRY_POINT_GROUP)])
    monkeypatch.setattr(harnesses, "entry_points", lambda group: points.select(group=group))


def test_own_harnesses_are_found_by_their_files() -> None:
    assert {"agent-loop", "claude-code", "pi"} <= set(harness_names())


@pytest.mark.parametrize("name", ["claude-code", "claude_code"])
def test_hyphens_and_underscores_are_the_same(name: str) -> None:
    assert get_harness(name).name == "claude-code"


@pytest.mark.parametrize("name", ["agent-loop", "claude-code", "pi"])
def test_every_harness_declares_itself(name: str) -> None:
    harness = get_harness(name)
    assert harness.name == name
    assert harness.version
    assert "default" in harness.profiles
    assert harness.dialect in ("anthropic", "chat")
    assert harness.memory_mb >= 256


def test_unknown_name_carries_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean claude-code"):
        get_harness("claude-cod")


def test_entry_point_is_named_without_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    third_party(monkeypatch, "other_agent", "no.such.module:Agent")
    assert "other-agent" in harness_names()
    with pytest.raises(ConfigError, match=r"other_agent = no\.such\.module:Agent .* can't be loaded"):
        get_harness("other-agent")


@pytest.mark.parametrize(
    "value", ["pathlib:Path", "mixharness.harnesses.base:Harness", "mixharness.harnesses:get_harness"]
)
def test_entry_point_must_be_a_concrete_harness(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    third_party(monkeypatch, "other", value)
    with pytest.raises(ConfigError, match="must be a concrete subclass"):
        get_harness("other")


def test_entry_point_must_have_the_harness_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    third_party(monkeypatch, "other", "mixharness.harnesses.agent_loop:AgentLoop")
    with pytest.raises(ConfigError, match="names itself 'agent-loop'"):
        get_harness("other")


def test_our_names_cannot_be_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    third_party(monkeypatch, "pi", "no.such.module:Pi")
    assert isinstance(get_harness("pi"), Harness)

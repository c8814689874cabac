"""Benchmarks are found by name: ours, a plug-in's, and those whose files the user has somewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mixharness.benchmarks as registry
from mixharness.benchmarks import benchmark_names, get_benchmark, located
from mixharness.benchmarks.task import Benchmark
from mixharness.errors import ConfigError, UnknownName

FIXTURES = Path(__file__).parent / "fixtures"
CHECKOUT = FIXTURES / "ClawGym-Agents"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No benchmark is located unless a test says so; plug-ins are searched for anew."""
    home = tmp_path / "home"
    monkeypatch.setenv("MIXHARNESS_HOME", str(home))
    monkeypatch.delenv("MIXHARNESS_CLAWGYMBENCH", raising=False)
    registry._classes.cache_clear()
    yield home
    registry._classes.cache_clear()


def test_ours_are_found_by_scanning() -> None:
    assert {"Starter", "ClawGymBench"} <= set(benchmark_names())
    assert [benchmark.name for benchmark in located()] == ["Starter"]


def test_an_embedded_benchmark_is_made_once() -> None:
    assert get_benchmark("Starter") is get_benchmark("Starter")


def test_every_module_here_is_machinery_or_defines_a_benchmark() -> None:
    folder = Path(registry.__file__).parent
    modules = {p.stem for p in folder.glob("*.py") if p.stem != "__init__"} | {
        p.parent.name for p in folder.glob("*/__init__.py")
    }
    benchmarks = {cls.__module__.split(".")[2] for cls in registry._classes().values()}
    assert modules == benchmarks | registry._MACHINERY


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean Starter"):
        get_benchmark("Startr")
    with pytest.raises(UnknownName, match="did you mean ClawGymBench"):
        get_benchmark("ClawGym-Bench")


def test_a_benchmark_that_is_nowhere_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"--path DIR, or set MIXHARNESS_CLAWGYMBENCH=DIR"):
        get_benchmark("ClawGymBench")


def test_a_path_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="'/no/such/place' is no directory"):
        get_benchmark("ClawGymBench", "/no/such/place")


def test_an_embedded_benchmark_takes_no_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Starter is embedded"):
        get_benchmark("Starter", tmp_path)


def test_the_variable_comes_before_the_home_folder(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "benchmarks").mkdir(parents=True)
    (nowhere / "benchmarks/ClawGymBench").symlink_to(CHECKOUT)
    assert {benchmark.name for benchmark in located()} == {"Starter", "ClawGymBench"}
    monkeypatch.setenv("MIXHARNESS_CLAWGYMBENCH", "/no/such/place")
    assert [benchmark.name for benchmark in located()] == ["Starter"]
    with pytest.raises(ConfigError, match="looked at /no/such/place"):
        get_benchmark("ClawGymBench")
    monkeypatch.setenv("MIXHARNESS_CLAWGYMBENCH", str(CHECKOUT))
    assert get_benchmark("ClawGymBench").task_ids() == ("task_0000", "task_0001")


PLUGIN = """
from mixharness.benchmarks.task import Benchmark, Grader, Task

class Tiny(Benchmark):
    name = "{name}"
    digest = "0" * 64

    def task_ids(self):
        return ("one",)

    def load(self, task_id, seed=None):
        return Task(id="one", prompts=("Do it.",), files={{}}, grader=Grader(argv=("true",)))
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, entry: str = "tiny_plugin:Tiny") -> None:
    """A third-party package, as an installer would lay it out."""
    folder.mkdir()
    (folder / "tiny_plugin.py").write_text(PLUGIN.format(name=name))
    about = folder / "tiny_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[mixharness.benchmarks]\ntiny = {entry}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "tiny_plugin", raising=False)


def test_an_installed_package_adds_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, "Tiny")
    assert "Tiny" in benchmark_names()
    assert get_benchmark("Tiny").load("one").prompts == ("Do it.",)
    assert isinstance(get_benchmark("Tiny"), Benchmark)


def test_a_plugin_cannot_take_a_name_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, "Starter")
    with pytest.raises(ConfigError, match="two benchmarks are named 'Starter'"):
        benchmark_names()


def test_a_plugin_that_names_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, "Tiny", entry="tiny_plugin:Grader")
    with pytest.raises(ConfigError, match="no Benchmark class"):
        benchmark_names()

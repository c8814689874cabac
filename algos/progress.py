"""What a run shows while it runs: a live table on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mixharness.algos.metrics import harness_label
from mixharness.rollout import Rollout

COLUMNS = {
    "reward": "reward/mean",
    "trained": "tokens/trained",
    "zero groups": "groups/zero_signal",
    "invalid": "rollouts/invalid",
    "clip": "update/clip_fraction",
    "kl": "update/kl_to_old",
    "mismatch": "mismatch/kl",
    "rollout s": "time/rollout_s",
    "training s": "time/training_s",
}


class Progress:
    """Counts; shows nothing.

    Attributes:
        done: rollouts of this step that ended.
    """

    def __init__(self) -> None:
        self.done = 0

    def collecting(self, step: int, steps: int, rollouts: int) -> None:
        """A step's rollouts start."""
        self.done = 0

    def rollout(self, rollout: Rollout) -> None:
        """One ended."""
        self.done += 1

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step ended."""


class LiveProgress(Progress):
    """A live table of the latest steps; a context manager.

    Args:
        shown: how many steps stay in view.
    """

    def __init__(self, console: Console | None = None, shown: int = 12) -> None:
        super().__init__()
        self._rows: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=shown)
        self._rewards: dict[str, list[float]] = {}
        self._of, self._where = 0, ""
        self._live = Live(console=console or Console(stderr=True), refresh_per_second=4)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def collecting(self, step: int, steps: int, rollouts: int) -> None:
        super().collecting(step, steps, rollouts)
        self._of, self._where, self._rewards = rollouts, f"step {step + 1}/{steps}", {}
        self._show()

    def rollout(self, rollout: Rollout) -> None:
        super().rollout(rollout)
        if rollout.reward is not None:
            self._rewards.setdefault(harness_label(rollout), []).append(rollout.reward)
        self._show()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._rows.append((step, metrics))
        self._show()

    def _show(self) -> None:
        means = "  ".join(f"{label} {sum(r) / len(r):.2f}" for label, r in sorted(self._rewards.items()))
        status = f"{self._where}: {self.done}/{self._of} rollouts  {means}"
        self._live.update(Group(self.table(), Text(status)))

    def table(self) -> Table:
        """The latest steps."""
        harnesses = sorted(
            {n for _, m in self._rows for n in m if n.startswith("reward/")} - {"reward/mean", "reward/std"}
        )
        columns = {"reward": COLUMNS["reward"], **{n.removeprefix("reward/"): n for n in harnesses}, **COLUMNS}
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("step", *columns):
            table.add_column(name, justify="right", no_wrap=True)
        for step, metrics in self._rows:
            table.add_row(str(step), *(_cell(metrics.get(name)) for name in columns.values()))
        return table


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) >= 1 else f"{value:.3g}"

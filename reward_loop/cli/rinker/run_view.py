"""How a run goes, on standard error: a bar and the figures that matter; on what is no terminal, plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from reward_loop.rinker.loops.observer import CheckpointRecord, Observer
from reward_loop.runs.report_plots import show_number

_PLAIN_EVERY_S = 10.0
_FIRST = (
    "reward/total",
    "test/reward/total",
    "test/pass_rate",
    "env/all/correct",
    "train_loss",
    "train_mean_nll",
    "train_accuracy",
    "test/accuracy",
    "test/loss",
    "test/nll",
    "optim/kl_sample_train_v1",
    "time/total",
)
_MOST = 14


class RunView(Observer):
    """An observer that draws; a context manager, since a terminal has to be put right afterwards."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._printed = -_PLAIN_EVERY_S
        self._steps = 0
        self._saved = ""
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, TextColumn("ETA"), TimeRemainingColumn(), console=console, expand=True)
        self._task = self._bar.add_task("starting", total=None)
        self._live = Live(self._bar, console=console, refresh_per_second=8, transient=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def on_start(self, kind: str, first_step: int, steps: int) -> None:
        """See `Observer`."""
        self._steps = steps
        self._bar.update(self._task, description=kind, total=steps, completed=first_step)

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer`."""
        shown = chosen(metrics)
        if self._live is not None:
            self._bar.update(self._task, completed=step + 1)
            self._live.update(Group(self._bar, _table(shown, self._saved)))
        elif self._clock() - self._printed >= _PLAIN_EVERY_S or step + 1 == self._steps:
            self._printed = self._clock()
            figures = ", ".join(f"{name} {show_number(value)}" for name, value in list(shown.items())[:6])
            self._console.print(f"step {step + 1}/{self._steps}: {figures}", soft_wrap=True)

    def on_checkpoint(self, checkpoint: CheckpointRecord) -> None:
        """See `Observer`."""
        self._saved = checkpoint.state_path


def chosen(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that are worth a line, those that everybody looks at first."""
    ahead = [name for name in _FIRST if name in metrics]
    rest = [name for name in metrics if name not in ahead and not name.rpartition("/")[2].startswith("total_")]
    return {name: metrics[name] for name in [*ahead, *rest][:_MOST]}


def _table(metrics: Mapping[str, float], saved: str) -> Table:
    table = Table.grid(padding=(0, 2))
    items = [(name, show_number(value)) for name, value in metrics.items()]
    half = -(-len(items) // 2)
    for left, right in zip(items[:half], [*items[half:], ("", "")], strict=False):
        table.add_row(f"[dim]{left[0]}[/]", left[1], f"[dim]{right[0]}[/]", right[1])
    if saved:
        table.add_row("[dim]saved[/]", saved)
    return table

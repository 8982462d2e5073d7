"""Live lines on standard error: how far, how fast, how long still, and how samples end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text
from typing_extensions import override

STATUSES = ("ok", "error", "timeout", "unscorable")

_PLAIN_EVERY_S = 10.0
_STYLES = {"ok": "green", "error": "red", "timeout": "yellow", "unscorable": "cyan"}


class LiveCounts:
    """A progress bar with a count per status; on what is no terminal, a plain line every ten seconds."""

    def __init__(self, console: Console, title: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._title = title
        self._total = total
        self.statuses: Counter[str] = Counter(dict.fromkeys(STATUSES, 0))
        self._started = self._printed = clock()
        self._resumed = 0
        self._bar = _Bar(console, title, total, self.statuses)

    def resume(self, statuses: Counter[str]) -> None:
        """Count rows that an earlier run has scored."""
        self._resumed = statuses.total()
        self.statuses.update(statuses)

    def add(self, row: dict[str, Any]) -> None:
        """Count one row that has ended."""
        self.statuses[row["reward_status"]] += 1
        if not self._console.is_terminal and self._clock() - self._printed > _PLAIN_EVERY_S:
            self._print()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def _print(self) -> None:
        self._printed = self._clock()
        done = self.statuses.total()
        rate = (done - self._resumed) / (self._printed - self._started)
        left = f"{(self._total - done) / rate:.0f} s left" if rate else "waiting"
        counts = ", ".join(f"{count} {status}" for status, count in self.statuses.items() if count)
        self._console.print(
            f"{self._title}: {done}/{self._total} rows, {rate:.1f} rows/s, {left} ({counts})", soft_wrap=True, highlight=False
        )


class _Bar(Progress):
    """Reads the counts when it draws, ten times a second: drawing costs the same however fast rows end."""

    def __init__(self, console: Console, title: str, total: int, statuses: Counter[str]) -> None:
        self._statuses = statuses
        whole = Column(no_wrap=True)  # in a narrow terminal only the bar gives way
        super().__init__(
            TextColumn("{task.description}", table_column=whole),
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=whole),
            _Rate(table_column=whole),
            TimeElapsedColumn(table_column=whole),
            TextColumn("ETA", table_column=whole),
            TimeRemainingColumn(table_column=whole),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self.add_task(title, total=total)

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.task_ids:  # none yet when the base class first asks
            self.update(task, completed=self._statuses.total())
        yield from super().get_renderables()
        counts = ((f"{count:,} {status}", _STYLES[status]) for status, count in self._statuses.items() if count)
        yield Text("  ").join(Text(text, style=style) for text, style in counts)


class _Rate(ProgressColumn):
    @override
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} rows/s" if speed else "… rows/s", style="progress.data.speed")

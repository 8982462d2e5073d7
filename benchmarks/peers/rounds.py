"""Figures of contestants that take turns, and the ratios between them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

OURS = "ours"


@dataclass(slots=True)
class Rounds:
    """Every figure of every contestant, round by round: figure -> contestant -> values."""

    title: str
    figures: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def add(self, contestant: str, **figures: float) -> None:
        """Keep the figures of one round."""
        for figure, value in figures.items():
            self.figures[figure][contestant].append(value)

    def ratio(self, figure: str, other: str) -> list[float]:
        """Return ours to another's, round by round; empty where either took no part."""
        values = self.figures.get(figure, {})
        return [mine / theirs for mine, theirs in zip(values.get(OURS, ()), values.get(other, ()), strict=False)]


@dataclass(frozen=True, slots=True)
class Target:
    """What the median of ours must come to: at least or at most `value`, as a ratio to `other` or as it stands."""

    figure: str
    value: float
    at_least: bool = False
    other: str | None = None

    def judge(self, rounds: Rounds) -> tuple[str, str, str, bool] | None:
        """Return a row (what, measured, target, whether it is met); None where a side took no part."""
        values = rounds.ratio(self.figure, self.other) if self.other else rounds.figures.get(self.figure, {}).get(OURS, [])
        if not values:
            return None
        middle = statistics.median(values)
        met = middle >= self.value if self.at_least else middle <= self.value
        name = f"{self.figure} to {self.other}" if self.other else self.figure
        return name, spread(values), f"{'at least' if self.at_least else 'at most'} {self.value:g}", met


def spread(values: list[float]) -> str:
    """Return the median and, of several values, the range."""
    middle = _number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({_number(min(values))} to {_number(max(values))})"


def show(console: Console, rounds: Rounds, targets: list[Target]) -> bool:
    """Print the figures and the targets; whether all targets were met."""
    table = Table(title=rounds.title, title_justify="left")
    table.add_column("median (range)")
    for figure in rounds.figures:
        table.add_column(figure, justify="right")
    contestants = dict.fromkeys(name for values in rounds.figures.values() for name in values)
    for name in contestants:
        table.add_row(name, *(spread(values[name]) if name in values else "" for values in rounds.figures.values()))
    console.print(table)
    judged = [row for target in targets if (row := target.judge(rounds))]
    if judged:
        verdicts = Table("of ours", "median (range)", "target", "met")
        for name, value, target, met in judged:
            verdicts.add_row(name, value, target, "yes" if met else "[bold red]no")
        console.print(verdicts)
    return all(met for *_, met in judged)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"

"""`rinker eval`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from reward_loop.cli.options import ConfigFiles, Overrides, refuse_paths
from reward_loop.config_section import load_section
from reward_loop.runs.report_plots import show_number


def evaluate(
    config: ConfigFiles = None,
    overrides: Overrides = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", metavar="NAME", help="Which, such as 000040; once for each.", show_default="all of the run"),
    ] = None,
) -> None:
    """Evaluate what a run of reinforcement learning has saved, on its test problems."""
    from reward_loop.rinker.evaluation.offline import evaluate_rl
    from reward_loop.rinker.rl.config import RLConfig

    refuse_paths(overrides, "give the run's configuration with -c FILE, and settings as data.test_problems=test.jsonl")
    settings = load_section(RLConfig, *(config or ()), overrides=overrides or ())
    found = evaluate_rl(settings, names=checkpoint or ())
    names = list(dict.fromkeys(name for one in found for name in one.metrics))
    table = Table(box=None, pad_edge=False)
    for title in ("checkpoint", *names):
        table.add_column(title, justify="left" if title == "checkpoint" else "right")
    for one in found:
        table.add_row(one.checkpoint.name, *(show_number(one.metrics.get(name)) for name in names))
    Console(highlight=False).print(table)

"""`reward-loop rescore`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reward_loop.cli.options import ConfigFiles, Overrides, config_of
from reward_loop.cli.progress import LiveCounts
from reward_loop.errors import DataError
from reward_loop.loop import RewardLoopManager
from reward_loop.runs.fields import FieldMap
from reward_loop.runs.rescore import Change, Comparison
from reward_loop.runs.rescore import rescore as rescore_file
from reward_loop.runs.scored import OUTCOME_SCHEMA, to_json
from reward_loop.runs.scoring import summary_path
from reward_loop.runs.source import open_source

_CHANGED = 1
_SHOWN = 20


def rescore(
    scored: Annotated[Path, typer.Argument(metavar="OUTPUT", help="A file that `reward-loop score` wrote.")],
    overrides: Overrides = None,
    config: ConfigFiles = None,
    changes: Annotated[Path | None, typer.Option("--changes", metavar="FILE", help="Write every change here, as JSONL.")] = None,
) -> None:
    """Score a stored run with today's functions and compare. Exit code 1 if any reward or status changed.

    The run's own configuration is the base; files and settings given here come on top.
    """
    console = Console(stderr=True)
    summary = _summary(scored)
    settings = config_of(config, overrides, summary["config"])
    source = open_source(scored)
    if missing := set(OUTCOME_SCHEMA.names) - set(source.names()):
        raise DataError(f"{scored} is no scored file: it has no {sorted(missing)}; make one with reward-loop score")
    with RewardLoopManager(settings) as manager, LiveCounts(console, "rescoring", source.num_rows()) as progress:
        comparison = asyncio.run(rescore_file(manager, source, FieldMap.from_dict(summary["fields"]), progress.add))
    if changes is not None:
        changes.write_text("".join(f"{_as_json(change)}\n" for change in comparison.changes), encoding="utf-8")
    _print(console, comparison)
    if comparison.changes:
        raise typer.Exit(_CHANGED)


def _summary(scored: Path) -> dict[str, Any]:
    path = summary_path(scored)
    if not scored.exists():
        unfinished = scored.with_name(f"{scored.name}.partial").is_dir()
        raise DataError(f"{scored}: this run has not ended; finish it with --resume" if unfinished else f"{scored}: no such file")
    if not path.is_file():
        raise DataError(f"{path} is not there: it says how {scored} was scored; score the rollouts again to compare")
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        summary = {}
    if not {"config", "fields"} <= summary.keys():
        raise DataError(f"{path} is damaged, it does not say how {scored} was scored; score the rollouts again to compare")
    return summary


def _print(console: Console, comparison: Comparison) -> None:
    if comparison.changes:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("row", "stored", "today", "message"):
            table.add_column(column, overflow="fold")
        for change in comparison.changes[:_SHOWN]:
            table.add_row(str(change.row), _short(change.stored), _short(change.today), Text(change.today["reward_message"]))
        console.print(table)
        if len(comparison.changes) > _SHOWN:
            console.print(f"and {len(comparison.changes) - _SHOWN} more: see --changes FILE")
    console.print(f"{comparison.same} rows as stored, {len(comparison.changes)} changed")


def _short(fields: dict[str, Any]) -> Text:
    reward = fields["reward"]
    return Text(fields["reward_status"] if reward is None else f"{reward:g}")


def _as_json(change: Change) -> str:
    return to_json({"row": change.row, "stored": change.stored, "today": change.today})

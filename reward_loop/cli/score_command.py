"""`reward-loop score`."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reward_loop.cli.options import FAILED, INTERRUPTED, ConfigFiles, Overrides, config_of, refuse_paths
from reward_loop.cli.progress import STATUSES, LiveCounts
from reward_loop.config import RewardLoopConfig
from reward_loop.loop import RewardLoopManager
from reward_loop.runs.fields import FieldMap
from reward_loop.runs.scored import OUTCOME_SCHEMA
from reward_loop.runs.scoring import FileScoring
from reward_loop.runs.source import Format, RolloutSource, open_source

_SHOWN = 20
_SHOWN_CHARACTERS = 400


def score(
    rollouts: Annotated[Path, typer.Argument(metavar="INPUT", help="JSONL, Parquet, or a saved Hugging Face dataset.")],
    overrides: Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where rewards go: .parquet or .jsonl.", show_default="INPUT.scored.parquet"),
    ] = None,
    config: ConfigFiles = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output, or drop an unfinished run.")] = False,
    input_format: Annotated[str | None, typer.Option("--format", help="jsonl, parquet or huggingface; else by the name.")] = None,
    response_field: Annotated[str | None, typer.Option(help="Field with the response: text, chat messages or token ids.")] = None,
    prompt_field: Annotated[str | None, typer.Option(help="Field with the prompt.")] = None,
    ground_truth_field: Annotated[str | None, typer.Option(help="Field with the ground truth, dotted: a.b.")] = None,
    data_source_field: Annotated[str | None, typer.Option(help="Field with the data source, which selects the rule.")] = None,
    data_source: Annotated[str | None, typer.Option(help="The data source of every row.")] = None,
    extra_info_field: Annotated[str | None, typer.Option(help="Field with the extra info, an object.")] = None,
    uid_field: Annotated[str | None, typer.Option(help="Field that groups the samples of one prompt.")] = None,
) -> None:
    """Score the rollouts of a file, whatever its size; show progress; write rewards and a summary.

    Samples that fail keep their status and message, and the exit code is 1 (unless on_error is mask or value).
    """
    console = Console(stderr=True)
    refuse_paths(overrides, remedy="an output is given with -o FILE")
    settings = config_of(config, overrides)
    source = open_source(rollouts, _format(input_format))
    fields = FieldMap.detect(
        source.names(),
        source.head(),
        response=response_field,
        prompt=prompt_field,
        ground_truth=ground_truth_field,
        data_source=data_source_field,
        constant_data_source=data_source,
        extra_info=extra_info_field,
        uid=uid_field,
    )
    beside = rollouts if rollouts.name else rollouts.resolve()
    target = output or beside.with_name(f"{beside.name}.scored.parquet")
    if replaced := [name for name in source.names() if name in OUTCOME_SCHEMA.names]:
        console.print(f"the input's own {', '.join(replaced)} will be replaced in {target}", soft_wrap=True, markup=False)
    try:
        summary, first_failure = _score(console, settings, source, fields, target, resume=resume, overwrite=overwrite)
    except (KeyboardInterrupt, asyncio.CancelledError):
        words = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
        again = shlex.join(["reward-loop", *words, "--resume"])
        console.print(f"interrupted; to continue: {again}", soft_wrap=True, highlight=False, markup=False)
        raise typer.Exit(INTERRUPTED) from None
    _print(console, summary, first_failure)
    if _failures(summary) and settings.reward_model.on_error == "raise":
        raise typer.Exit(FAILED)


def _score(
    console: Console,
    settings: RewardLoopConfig,
    source: RolloutSource,
    fields: FieldMap,
    target: Path,
    *,
    resume: bool,
    overwrite: bool,
) -> tuple[dict[str, Any], str]:
    """Return the summary, and the message of the first sample that failed."""
    rows = source.num_rows()
    with RewardLoopManager(settings) as manager:
        progress = LiveCounts(console, "scoring", rows)  # its clock runs from here: reward servers take a while to start
        with FileScoring(manager, source, fields, target, progress.add) as run:
            progress.resume(run.begin(resume=resume, overwrite=overwrite).statuses)
            started_at, started = datetime.now(UTC), time.monotonic()
            with progress:
                asyncio.run(run.run())
            seconds = time.monotonic() - started
            with console.status(f"writing {escape(str(target))}"):
                return run.end(started_at, seconds), run.first_failure


def _format(name: str | None) -> Format | None:
    match name:
        case None | "jsonl" | "parquet" | "huggingface":
            return name
        case _:
            raise typer.BadParameter(f"{name!r} is none of jsonl, parquet, huggingface", param_hint="--format")


def _failures(summary: dict[str, Any]) -> int:
    return sum(summary["statuses"].get(status, 0) for status in ("error", "timeout"))


def _print(console: Console, summary: dict[str, Any], first_failure: str) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("data source", overflow="fold")
    for column in ("rows", "mean reward", *STATUSES):
        table.add_column(column, justify="right", no_wrap=True)
    sources = sorted(summary["sources"].items(), key=lambda item: -item[1]["rows"])
    for name, source in sources[:_SHOWN]:
        mean = "-" if source["mean"] is None else f"{source['mean']:.4f}"
        counts = (str(source["statuses"].get(status, 0)) for status in STATUSES)
        table.add_row(Text(name), str(source["rows"]), mean, *counts)
    console.print(table)
    lines = [f"and {len(sources) - _SHOWN} more data sources, in the summary"] if len(sources) > _SHOWN else []
    if failed := _failures(summary):
        first = f"; the first is {shorten(first_failure, _SHOWN_CHARACTERS)}" if first_failure else ""
        lines.append(f"{failed} of {summary['rows']} samples failed{first}")
        lines.append(f"all failures by reason: reward-loop report {shlex.quote(summary['output'])}")
    before = f" ({summary['rows_before']} of them before)" if summary["rows_before"] else ""
    rate = summary["rows_per_second"] or 0
    lines.append(f"{summary['rows']} rows{before} in {summary['seconds']:.1f} s ({rate:,.0f} rows/s) -> {summary['output']}")
    console.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)

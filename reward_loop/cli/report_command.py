"""`reward-loop report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reward_loop.runs.report import write_report


def report(
    scored: Annotated[Path, typer.Argument(metavar="OUTPUT", help="A file that `reward-loop score` wrote.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Where the page goes.", show_default="OUTPUT.html")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="The audit of a rubric pipeline's configuration, or a reward log: how the weights went.",
            show_default="the run's audit, if it had one",
        ),
    ] = None,
) -> None:
    """Make one self-contained HTML page of a scored file: distributions, failures, latencies, slowest samples."""
    page = html or scored.with_name(f"{scored.name}.html")
    write_report(scored, page, weights)
    Console(stderr=True).print(f"report: {page}", soft_wrap=True, highlight=False)

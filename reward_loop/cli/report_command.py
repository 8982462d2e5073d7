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
) -> None:
    """Make one self-contained HTML page of a scored file: distributions, failures, latencies, slowest samples."""
    page = html or scored.with_name(f"{scored.name}.html")
    write_report(scored, page)
    Console(stderr=True).print(f"report: {page}", soft_wrap=True, highlight=False)

"""`rinker report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reward_loop.rinker.report.page import write_run_report


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The log_path of a run.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Where the page goes.", show_default="RUN/report.html")
    ] = None,
) -> None:
    """Make one self-contained HTML page of a run: how each metric went, step by step."""
    page = html or run / "report.html"
    write_run_report(run, page)
    Console(stderr=True).print(f"report: {page}", soft_wrap=True, highlight=False)

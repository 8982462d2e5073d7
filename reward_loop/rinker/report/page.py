"""One self-contained HTML page of a run: its settings, and how each metric went.

Invariants: the page holds no script, loads nothing and bears no time of its own; what a user wrote is escaped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reward_loop.errors import DataError
from reward_loop.rinker.loops.run_log import CONFIG, METRICS, read_checkpoints
from reward_loop.rinker.report.curves import by_section, read_curves
from reward_loop.runs.report_page import page_environment


def write_run_report(run: Path, page: Path) -> None:
    """Write the page of the run in a directory. Raises DataError where there is none, or the page can't be written."""
    curves = read_curves(run / METRICS)
    settings = _settings(run / CONFIG)
    environment = page_environment(Path(__file__).parent)
    text = environment.get_template("run.html").render(
        name=run.resolve().name,
        kind=settings.pop("kind", "training"),
        settings=sorted(_flat(settings)),
        sections=by_section(curves),
        steps=max(curve.points[-1][0] for curve in curves) + 1,
        checkpoints=read_checkpoints(run),
        tiles={curve.name: curve.last for curve in curves if curve.name in _TILES},
    )
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{page}: the report can't be written ({error.strerror})") from error


_TILES = (
    "reward/total",
    "test/reward/total",
    "test/accuracy",
    "test/nll",
    "train_accuracy",
    "train_loss",
    "train_mean_nll",
    "optim/entropy",
    "time/total",
)


def _settings(path: Path) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a run of another program, or one that was killed at once: its metrics are still worth a page
        return {}
    return read


def _flat(settings: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        rows += _flat(value, f"{before}{key}.") if isinstance(value, dict) and value else [(before + key, json.dumps(value))]
    return rows

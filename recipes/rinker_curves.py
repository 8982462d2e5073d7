"""Draws how metrics of a run of rinker went: python -m recipes.rinker_curves RUN PICTURE.svg METRIC …"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.reward_model.plots import plot
from reward_loop.errors import DataError
from reward_loop.rinker.loops.run_log import METRICS
from reward_loop.rinker.report.curves import read_curves


def draw(run: Path, picture: Path, metrics: Sequence[str]) -> Path:
    """Draw one panel for each metric, and return the picture's path. Raises DataError for a metric that the run has not."""
    curves = {curve.name: curve.points for curve in read_curves(run / METRICS)}
    if missing := [name for name in metrics if name not in curves]:
        raise DataError(f"{run} has no {', '.join(missing)}; it has {', '.join(curves)}")
    return plot(picture, {name: {name: curves[name]} for name in metrics}, "step")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    print(draw(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))

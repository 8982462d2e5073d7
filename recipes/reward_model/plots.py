"""Plots of what a training and a policy's improvement came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reward_loop.errors import TrainingError

Curve = Sequence[tuple[float, float]]
"""Points (x, y)."""


def plot(path: Path, panels: Mapping[str, Mapping[str, Curve]], x_label: str) -> Path:
    """Draw one panel beside the other, each with its named curves, and return the picture's path.

    A picture that ends in .svg is the same file for the same curves.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise TrainingError(f"plots need matplotlib ({error}): pip install 'reward-loop[plots]'") from error
    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.2), layout="constrained", squeeze=False)
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        _panel(axis, title, curves, x_label)
    undated: dict[str, Any] = {"metadata": {"Date": None}} if path.suffix == ".svg" else {}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "plots"}):
        figure.savefig(path, dpi=120, **undated)
    plt.close(figure)
    return path


def _panel(axis: Any, title: str, curves: Mapping[str, Curve], x_label: str) -> None:
    for name, points in curves.items():
        axis.plot(*zip(*points, strict=True), label=name, linewidth=1.4, marker="." if len(points) < 40 else None)
    axis.set_title(title, loc="left", fontsize=10)
    axis.set_xlabel(x_label, fontsize=9)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        axis.legend(fontsize=8, frameon=False)

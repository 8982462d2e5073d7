"""Runs of rinker's recipes: their settings for a directory of the test's own, and what a run wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from reward_loop.config_base import Config
from reward_loop.config_section import load_section

ROOT = Path(__file__).resolve().parents[2]

C = TypeVar("C", bound=Config)


def settings(kind: type[C], recipe: str, run: Path, *overrides: str, layers: tuple[str, ...] = ("config.yaml",)) -> C:
    """Return the settings of a recipe's files, for a run in this directory."""
    files = [ROOT / "recipes" / recipe / name for name in layers]
    return load_section(kind, *files, overrides=[f"log_path={run}", *overrides])


def steps(run: Path) -> list[dict[str, Any]]:
    """Return the metrics of each step."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def values(run: Path, metric: str) -> list[float]:
    """Return one metric of each step that has it."""
    return [step[metric] for step in steps(run) if metric in step]


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)

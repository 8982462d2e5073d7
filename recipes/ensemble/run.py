"""Scores samples by three reward models behind one router, and compares which sample each way of combining them takes as best.

    python recipes/ensemble/run.py [real]

Without "real", which takes the models of config.yaml, the models are tiny ones made on the spot, which know nothing.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from reward_loop import DataProto, RewardLoopManager, load_config
from reward_loop.config import RewardLoopConfig
from reward_loop.functions.ensemble import Reduction

HERE = Path(__file__).resolve().parent
PROBLEMS = 4
POLICY = "small"
MODELS = ("first", "second", "third")
SEEDS = (1, 2, 5)

Row = dict[str, Any]


def rollouts(directory: Path) -> list[Row]:
    """Return the samples of one of the demo's policies for some problems, those of one problem one after the other."""
    file = directory / "rollouts.jsonl"
    _run("demo/make_rollouts.py", file)
    with file.open(encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["extra_info"]["policy"] == POLICY]
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row["uid"])]
    answered = [group for group in groups if all(row["response"] for row in group)]
    return [row for group in answered[:PROBLEMS] for row in group]


def tiny_models(directory: Path) -> Row:
    """Make three reward models that differ by their seed; return the settings with which they take the real ones' place."""
    _run("tiny_models.py", directory, *(f"reward:{seed}" for seed in SEEDS))
    return {
        "models": {name: {"path": str(directory / f"reward-{seed}")} for name, seed in zip(MODELS, SEEDS, strict=True)},
        "rollout": {"max_model_len": 1024},
        "server": {"cpu_kv_cache_mb": 64},
        "scoring": {"too_long": "truncate_left"},
    }


def _run(script: str, *arguments: object) -> None:
    subprocess.run([sys.executable, str(HERE.parent / script), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def batch(rows: list[Row]) -> DataProto:
    """Return the samples as text."""
    return DataProto.from_dict(
        non_tensors={
            "solution_str": [row["response"] for row in rows],
            "raw_prompt": [[{"role": "user", "content": row["prompt"]}] for row in rows],
            "data_source": [row["data_source"] for row in rows],
            "reward_model": [{"ground_truth": row["ground_truth"]} for row in rows],
        }
    )


def reductions(config: RewardLoopConfig) -> dict[str, Reduction]:
    """Return the three ways of making one reward of three scores, with the configuration's weights and penalty."""
    settings = config.reward_model.ensemble
    ways: tuple[Literal["mean", "min", "uncertainty"], ...] = ("mean", "min", "uncertainty")
    return {way: Reduction(way, settings.weights, settings.penalty) for way in ways}


def show(rows: list[Row], scored: DataProto, config: RewardLoopConfig) -> None:
    """Print each model's score, their disagreement and the three rewards; * is the best sample of its problem."""
    columns, ways = scored.non_tensor_batch, reductions(config)
    table = Table("problem", "response ends", *MODELS, "disagree", *ways)
    best: dict[str, dict[str, int]] = {}
    for uid, group in groupby(range(len(rows)), key=lambda row: rows[row]["uid"]):
        samples = list(group)
        # What each model said is in the extra info, so another reduction of it asks no model.
        scores = {row: {name: columns[f"rm_{name}"][row] for name in MODELS} for row in samples}
        rewards = {name: {row: way(scores[row])[0] for row in samples} for name, way in ways.items()}
        best[uid] = {name: max(samples, key=rewards[name].__getitem__) for name in ways}
        for row in samples:
            said = (f"{score:.2f}" for score in scores[row].values())
            made = (f"{rewards[name][row]:.2f}{'*' if best[uid][name] == row else ' '}" for name in ways)
            ending = rows[row]["response"].replace("\n", " ")[-20:]
            table.add_row(uid, ending, *said, f"{columns['rm_std'][row]:.2f}", *made, end_section=row == samples[-1])
    console = Console(width=110)
    console.print(table)
    for name in ("min", "uncertainty"):
        differ = sum(choice[name] != choice["mean"] for choice in best.values())
        console.print(f"best of {len(rows) // len(best)} by {name}: not that by mean in {differ} of {len(best)} problems")


def main() -> None:
    """Serve the models, score, print."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        config = load_config(HERE / "config.yaml", {} if sys.argv[1:] == ["real"] else {"reward_model": tiny_models(directory)})
        rows = rollouts(directory)
        with RewardLoopManager(config) as manager:
            show(rows, manager.compute_rm_score(batch(rows)), config)


if __name__ == "__main__":
    main()

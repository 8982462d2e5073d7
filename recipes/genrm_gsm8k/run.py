"""Scores solutions of word problems by a generative reward model behind the router, and prints what came of it.

    python recipes/genrm_gsm8k/run.py [MODEL]

Without MODEL the judge is a tiny one made on the spot, which knows nothing and is held to the form of an answer.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from reward_loop import DataProto, RewardLoopManager, default_compute_score, load_config

HERE = Path(__file__).resolve().parent
ROLLOUTS = (
    ("A farmer owns 12 hens and buys 30 more. How many hens are there?", "42", "12 + 30 = 42.\n#### 42"),
    ("A farmer owns 12 hens and buys 30 more. How many hens are there?", "42", "12 * 30 = 360.\n#### 360"),
    ("A farmer owns 12 hens and buys 30 more. How many hens are there?", "42", "I had 42 hens once.\n#### 42"),
    ("Mara saves 6 euros a week for 7 weeks. How much has she saved?", "42", "6 * 7 = 42.\n#### 42"),
    ("Mara saves 6 euros a week for 7 weeks. How much has she saved?", "42", "6 + 7 = 13.\n#### 13"),
    ("Mara saves 6 euros a week for 7 weeks. How much has she saved?", "42", "6 * 7 = 42, or so. " + "Let me see. " * 100),
    ("A train leaves with 50 people; 8 get off. How many are on board?", "42", "50 - 8 = 42.\n#### 42"),
    ("A train leaves with 50 people; 8 get off. How many are on board?", "42", ""),
)
TINY_SAMPLING = {
    "temperature": 0.0,
    "max_tokens": 20,
    "structured_outputs": {"regex": r"So so\.\n\n(10|[0-9])"},
}


def tiny_judge(directory: str) -> dict[str, Any]:
    """Make the tiny judge; return the settings with which it takes the real one's place."""
    command = [sys.executable, str(HERE.parent / "tiny_models.py"), directory, "judge"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {
        "reward_model": {
            "model": {"path": f"{directory}/judge"},
            "rollout": {"max_model_len": 1024},
            "server": {"cpu_kv_cache_mb": 64},
        },
        "custom_reward_function": {"reward_kwargs": {"sampling_params": TINY_SAMPLING}},
    }


def rollouts() -> DataProto:
    """Return the rollouts as text."""
    questions, truths, solutions = zip(*ROLLOUTS, strict=True)
    return DataProto.from_dict(
        non_tensors={
            "solution_str": list(solutions),
            "data_source": ["openai/gsm8k"] * len(ROLLOUTS),
            "reward_model": [{"ground_truth": truth} for truth in truths],
            "extra_info": [{"question": question} for question in questions],
        }
    )


def show(scored: DataProto) -> None:
    """Print a row per rollout, and why some have no score."""
    batch: Any = scored.batch
    columns = scored.non_tensor_batch
    table = Table("solution", "rule", "judge", "status")
    for row, (_, truth, solution) in enumerate(ROLLOUTS):
        rule = default_compute_score(data_source="openai/gsm8k", solution_str=solution, ground_truth=truth)
        status = columns["reward_status"][row]
        judged = f"{batch['rm_scores'][row].sum():.0f}" if status == "ok" else "-"
        text = solution.replace("\n", " ")
        table.add_row(f"{text:.30}", f"{rule:.0f}", judged, status)
    console = Console(width=110)
    console.print(table)
    for row, message in enumerate(columns["reward_message"]):
        if message:
            console.print(f"row {row}: {message:.400}", highlight=False, markup=False)


def main() -> None:
    """Serve the judge, score, print."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as directory:
        judge = {"reward_model": {"model": {"path": sys.argv[1]}}} if sys.argv[1:] else tiny_judge(directory)
        function = {"custom_reward_function": {"path": str(HERE / "reward.py")}}
        with RewardLoopManager(load_config(HERE / "config.yaml", function, judge)) as manager:
            show(manager.compute_rm_score(rollouts()))


if __name__ == "__main__":
    main()

"""Scores solutions by a rule and, where the rule takes them as right, by a judge of the way there; prints what came of it.

    python recipes/hybrid_fapo/run.py [MODEL]

Without MODEL the judge is a tiny one made on the spot, which knows nothing and is held to the form of a verdict.
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

from reward_loop import DataProto, RewardLoopManager, load_config

HERE = Path(__file__).resolve().parent
QUESTION = "What is 16/64 in lowest terms?"
TRUTH = r"\frac{1}{4}"
ROLLOUTS = (
    ("train", "16 and 64 share the factor 16.\n\nSo it is \\boxed{\\frac{1}{4}}."),
    ("train", "Strike the 6 from both.\n\nWhat is left is \\boxed{\\frac14}."),
    ("train", "Halve both.\n\nSo it is \\boxed{\\frac{8}{32}}."),
    ("train", "It is small."),
    ("train", "Everything is a quarter.\n\n" + "Surely. " * 200 + "\n\n\\boxed{\\frac14}"),
    ("test", "16 and 64 share the factor 16.\n\nSo it is \\boxed{\\frac{1}{4}}."),
    ("test", "Strike the 6 from both.\n\nWhat is left is \\boxed{\\frac14}."),
    ("test", "It is \\boxed{4}."),
)
TINY_SAMPLING = {
    "temperature": 0.0,
    "max_tokens": 20,
    "structured_outputs": {"choice": [r"\boxed{-1}", r"\boxed{0}", r"\boxed{1}"]},
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
    return DataProto.from_dict(
        non_tensors={
            "solution_str": [solution for _, solution in ROLLOUTS],
            "data_source": ["fractions"] * len(ROLLOUTS),
            "reward_model": [{"ground_truth": TRUTH}] * len(ROLLOUTS),
            "extra_info": [{"question": QUESTION, "split": split} for split, _ in ROLLOUTS],
        }
    )


def show(scored: DataProto) -> None:
    """Print a row per rollout, and what the judge was spared."""
    batch: Any = scored.batch
    columns = scored.non_tensor_batch
    table = Table("split", "solution", "right", "first error", "judge calls", "reward", "status")
    for row, (split, solution) in enumerate(ROLLOUTS):
        ok = columns["reward_status"][row] == "ok"
        reward = f"{batch['rm_scores'][row].sum():+.0f}" if ok else "-"
        cells = [str(columns[name][row]) for name in ("acc", "first_error", "judge_calls")]
        text = solution.replace("\n", " ")
        table.add_row(split, f"{text:.40}", *cells, reward, columns["reward_status"][row])
    console = Console(width=120)
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

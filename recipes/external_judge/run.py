"""Scores rollouts by a judge behind an OpenAI-compatible API, within its limits, and prints what came of it.

python recipes/external_judge/run.py
"""

from __future__ import annotations

import io
import json
import logging
import os
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from reward_loop import DataProto, RewardLoopManager

HERE = Path(__file__).resolve().parent
PROBLEMS = [(a, b) for a in range(11, 21) for b in range(13, 25)]
MAX_RPM, MAX_TPM = 2_400, 60_000


@contextmanager
def judge_server(key: str) -> Generator[str]:
    """Run the judge in a process of its own; yields its base URL."""
    command = [sys.executable, str(HERE / "server.py")]
    with subprocess.Popen(command, env={**os.environ, "JUDGE_API_KEY": key}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def answer(number: int, problem: tuple[int, int]) -> str:
    """Return a policy's answer: of three, one is wrong; every twelfth holds no number."""
    product = problem[0] * problem[1]
    return "I would rather not say." if number % 12 == 0 else f"The answer is {product + (number % 3 == 0)}."


def rollouts() -> DataProto:
    """Return one rollout per problem, as text."""
    return DataProto.from_dict(
        non_tensors={
            "solution_str": [answer(number, problem) for number, problem in enumerate(PROBLEMS)],
            "data_source": ["multiplication"] * len(PROBLEMS),
            "reward_model": [{"ground_truth": str(a * b)} for a, b in PROBLEMS],
            "extra_info": [{"problem": f"{a} * {b}"} for a, b in PROBLEMS],
        }
    )


def config(base_url: str) -> dict[str, Any]:
    """Return the configuration: the reward function, the limits, and masked failures."""
    return {
        "custom_reward_function": {
            "path": str(HERE / "judge.py"),
            "name": "judged",
            "reward_kwargs": {"base_url": base_url, "model": "judge"},
        },
        "reward_model": {
            "reward_manager": "rate_limited",
            "rate_limit": {
                "max_rpm": MAX_RPM,
                "max_tpm": MAX_TPM,
                "max_concurrent": 16,
                "estimated_tokens_per_request": 20,
            },
            "on_error": "mask",
        },
    }


def is_right(row: int, reward: float) -> bool:
    """Whether the judge's reward is what the answer deserves."""
    return reward == float(answer(row, PROBLEMS[row]) == f"The answer is {PROBLEMS[row][0] * PROBLEMS[row][1]}.")


def show(scored: DataProto, counts: dict[str, float], leaks: int) -> None:
    """Print the table."""
    batch: Any = scored.batch
    rewards, masks = batch["rm_scores"].sum(-1).tolist(), batch["reward_mask"].tolist()
    columns = scored.non_tensor_batch
    judged = [row for row, status in enumerate(columns["reward_status"]) if status == "ok"]
    mumbled = [row for row, message in enumerate(columns["reward_message"]) if "gave no verdict" in message]
    lost = len(PROBLEMS) - len(judged) - len(mumbled)
    minutes = (counts["seconds"] + 1.0) / 60  # a second's worth may go at once
    table = Table("what", "result")
    table.add_row("verdicts that are right", f"{sum(is_right(row, rewards[row]) for row in judged)} of {len(judged)}")
    table.add_row("replies without a verdict, masked", f"{sum(masks[row] == 0 for row in mumbled)} of {len(mumbled)}")
    table.add_row("replies 429, and samples lost", f"{counts['sent away']}, {lost}")
    table.add_row(f"at most {MAX_RPM:,} requests a minute", "kept" if counts["requests"] <= MAX_RPM * minutes else "broken")
    table.add_row(f"at most {MAX_TPM:,} tokens a minute", "kept" if counts["tokens"] <= MAX_TPM * minutes else "broken")
    table.add_row("outputs that hold the API key", str(leaks))
    Console(width=80).print(table)


def main() -> None:
    """Start the judge, score, and look for the key in everything that came out."""
    key = os.environ["JUDGE_API_KEY"] = f"sk-{secrets.token_hex(16)}"
    log = io.StringIO()
    logging.basicConfig(stream=log, level=logging.DEBUG)
    with judge_server(key) as base_url:
        with RewardLoopManager(config(base_url)) as manager:
            scored = manager.compute_rm_score(rollouts())
        with urllib.request.urlopen(f"{base_url}/counts", timeout=10) as response:
            counts = json.load(response)
    columns = {name: column.tolist() for name, column in scored.non_tensor_batch.items()}
    show(scored, counts, leaks=sum(key in output for output in (log.getvalue(), repr(columns), repr(manager))))


if __name__ == "__main__":
    main()

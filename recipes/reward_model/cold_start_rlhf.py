"""A cold start: a reward model learns from preferences, is served, and another policy learns from it, from scratch.

    python -m recipes.reward_model.cold_start_rlhf DIRECTORY

Two real vLLM servers start with the untrained model and are given the trained weights while they run. The policy then asks them
for rewards, and nobody else; how well it does by what people wanted, which it never sees, is measured beside.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers.utils import logging as transformers_logging

from recipes.reward_model.plots import plot
from recipes.reward_model.policy import Policy
from recipes.reward_model.served import served_scores
from recipes.reward_model.train_rm_full import SETTINGS
from recipes.reward_model.training_run import Data, Run, letters_data, published_weights, trained
from reward_loop import RewardModelManager, VLLMRewardClient
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.losses import pairwise_accuracy
from reward_loop.training.scores import score_rows

SERVERS = 2
ITERATIONS, PER_LETTER = 50, 16
AGREEMENT = 1e-3
"""How far a served score may be from the trainer's, both in float32."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """Means over the samples of one iteration, before its step."""

    number: int
    reward: float
    true_share: float


class ServedRewards:
    """The rewards of texts, each asked for once: a frozen reward model gives the same text the same reward."""

    def __init__(self, address: str) -> None:
        self._client = VLLMRewardClient(address=address)
        self._known = dict[str, float]()

    def of(self, texts: Sequence[str]) -> list[float]:
        """Return the reward of each text, those that are new by a few requests side by side."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known |= zip(new, self._client.score_batch_sync(new, normalize=False), strict=True)
        return [self._known[text] for text in texts]

    @property
    def asked(self) -> int:
        """How many texts the servers scored."""
        return len(self._known)


def serve(model: Path, logs: Path) -> RewardModelManager:
    """Start the servers of a model, behind one router."""
    return RewardModelManager(
        {
            "reward_model": {
                "enable": True,
                "enable_resource_pool": True,
                "replicas": SERVERS,
                "model": {"path": str(model), "name": "letters"},
                "rollout": {"max_model_len": 64},
                "server": {"cpu_kv_cache_mb": 64, "log_dir": str(logs)},
            }
        }
    )


def compare(run: Run, data: Data, address: str) -> tuple[float, float]:
    """Return the accuracy of the served model, and its largest difference from the trainer's scores; on the held-out pairs."""
    rows = [pair.chosen for pair in data.held_out] + [pair.rejected for pair in data.held_out]
    served, own = served_scores(address, rows), score_rows(run.model, rows)[:, 0]
    return pairwise_accuracy(*served.chunk(2)), (served - own).abs().max().item()


def improve(policy: Policy, rewards: ServedRewards) -> list[Iteration]:
    """Let the policy answer, ask for the rewards of its answers, and learn from them, again and again."""
    done = list[Iteration]()
    for number in track(range(1, ITERATIONS + 1), description="policy"):
        samples = policy.sample(PER_LETTER)
        got = rewards.of(samples.texts)
        done.append(Iteration(number, sum(got) / len(got), samples.true_share))
        policy.improve(samples, got)
    return done


def main() -> None:
    """Do all of it, and leave the figures and a plot in a directory."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    parser = argparse.ArgumentParser(description="Train a reward model, serve it, and improve a policy by it.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    directory: Path = asked.directory
    directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    console = Console()

    data = letters_data(directory, seed=asked.seed)
    run = trained(data, RewardModelTrainingMode.FULL, SETTINGS)
    with serve(data.model, directory / "logs") as manager:
        address = manager.get_router_address()
        untrained, _ = compare(run, data, address)
        report = manager.publish(published_weights(run, RewardModelTrainingMode.FULL), 1)
        console.print(f"published {report}", soft_wrap=True, highlight=False)
        served, difference = compare(run, data, address)
        rewards = ServedRewards(address)
        iterations = improve(Policy(seed=asked.seed), rewards)

    table = Table("", "before", "after", title="cold start")
    table.add_row("held-out accuracy, trainer", "", f"{run.accuracy:.1%}")
    table.add_row("held-out accuracy, servers", f"{untrained:.1%}", f"{served:.1%}")
    table.add_row("policy: reward", f"{iterations[0].reward:.2f}", f"{iterations[-1].reward:.2f}")
    table.add_row("policy: true share", f"{iterations[0].true_share:.2f}", f"{iterations[-1].true_share:.2f}")
    console.print(table)
    print(f"the servers scored {rewards.asked:,} answers, at most {difference:.1e} from the trainer's scores of held-out ones")
    _write(directory, run, iterations)
    if served != run.accuracy or difference > AGREEMENT:
        raise SystemExit(f"the servers' accuracy is {served:.4f}, the trainer's {run.accuracy:.4f}: they are not the same model")


def _write(directory: Path, run: Run, iterations: Sequence[Iteration]) -> None:
    rows = "".join(json.dumps(asdict(iteration)) + "\n" for iteration in iterations)
    (directory / "iterations.jsonl").write_text(rows, encoding="utf-8")
    seen = [(float(step.number), step.held_out.accuracy) for step in run.training.steps if step.held_out is not None]
    panels = {
        "reward model: held-out accuracy, by step": {"accuracy": seen},
        "policy: reward, by iteration": {"reward": [(float(one.number), one.reward) for one in iterations]},
        "policy: true share, by iteration": {"share": [(float(one.number), one.true_share) for one in iterations]},
    }
    print(f"the plot is {plot(directory / 'cold_start.png', panels, '')}")


if __name__ == "__main__":
    main()

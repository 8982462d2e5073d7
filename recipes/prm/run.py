"""Scores each step of some solutions by a process reward model, and prints the scores under the steps.

    python recipes/prm/run.py [MODEL]

Without MODEL the process model is a tiny one made on the spot, which knows nothing.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import AutoTokenizer

from reward_loop import DataProto, RewardLoopManager, load_config

HERE = Path(__file__).resolve().parent
QUESTION = "Mara saves 6 euros a week for 7 weeks and spends 2. How much is left?"
RESPONSES = (
    "She saves 6 * 7 = 42 euros.\n\nShe spends 2, so 42 - 2 = 40 are left.\n\nThe answer is \\boxed{40}.",
    "She saves 6 + 7 = 13 euros.\n\nTake away 2: 13 - 2 = 11 €.\n\nThe answer is \\boxed{11}.",
    "\\boxed{40}",
)


def tiny_model(directory: str) -> dict[str, Any]:
    """Make the tiny process model; return the settings with which it takes the real one's place."""
    command = [sys.executable, str(HERE.parent / "tiny_models.py"), directory, "process"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {
        "model": {"path": f"{directory}/process"},
        "rollout": {"max_model_len": 1024},
        "server": {"cpu_kv_cache_mb": 64},
    }


def rollouts(tokenizer: Any) -> DataProto:
    """Return the responses as a trainer holds them: token ids, padded on the right, with a mask over prompt and response."""
    ids = [torch.tensor(tokenizer.encode(response)) for response in RESPONSES]
    responses = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    lengths = torch.tensor([len(row) for row in ids])
    prompts = torch.ones(len(ids), 1, dtype=torch.int64)
    mask = (torch.arange(responses.shape[1]) < lengths[:, None]).long()
    return DataProto.from_dict(
        tensors={"prompts": prompts, "responses": responses, "attention_mask": torch.cat([prompts, mask], dim=1)},
        non_tensors={
            "raw_prompt": [[{"role": "user", "content": QUESTION}]] * len(ids),
            "data_source": ["word problems"] * len(ids),
            "reward_model": [{"ground_truth": "40"}] * len(ids),
        },
    )


def show(responses: Any, scored: DataProto, tokenizer: Any) -> None:
    """Print each response up to the token that holds a step's score, the score below it, and so on."""
    console = Console(width=100)
    batch: Any = scored.batch
    for row, scores in enumerate(batch["rm_scores"]):
        console.rule(f"response {row}: {scored.non_tensor_batch['reward_status'][row]}", align="left")
        begin = 0
        for end in scores.nonzero().flatten().tolist():
            console.print(tokenizer.decode(responses[row, begin : end + 1]).strip(), highlight=False, markup=False)
            console.print(f"    {scores[end]:.4f} at token {end}")
            begin = end + 1


def main() -> None:
    """Serve the model, score, print."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as directory:
        model = {"model": {"path": sys.argv[1]}} if sys.argv[1:] else tiny_model(directory)
        # The policy's tokenizer, whose tokens the scores are placed at, is the reward model's here; in training it rarely is.
        policy = {"actor_rollout_ref": {"model": {"path": model["model"]["path"]}}}
        config = load_config(HERE / "config.yaml", {"reward_model": model}, policy)
        tokenizer = AutoTokenizer.from_pretrained(model["model"]["path"])
        data: Any = rollouts(tokenizer)
        with RewardLoopManager(config) as manager:
            show(data.batch["responses"], manager.compute_rm_score(data), tokenizer)


if __name__ == "__main__":
    main()

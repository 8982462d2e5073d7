"""Scores three rollouts with two managers and a group reward and prints a table; one of them by the command line as well.

python recipes/custom_manager/run.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from reward_loop import DataProto, RewardLoopConfig, RewardLoopManager, load_config

HERE = Path(__file__).resolve().parent
RESPONSES = ("#### 42", "I think I think I think #### 42", "it is #### 43")
SAMPLE = {
    "data_source": "openai/gsm8k",
    "reward_model": {"ground_truth": "42"},
    "extra_info": {"weight": 3.0},
    "uid": "six times seven",
}


def text_rollouts() -> DataProto:
    """Return the rollouts as text."""
    columns = {name: [value] * len(RESPONSES) for name, value in SAMPLE.items()}
    return DataProto.from_dict(non_tensors={"solution_str": list(RESPONSES), **columns})


def token_rollouts(directory: str) -> DataProto:
    """Return them as token ids of a tiny tokenizer, which is saved to `directory`."""
    words = dict.fromkeys(["<pad>", *(word for response in RESPONSES for word in response.split())])
    bare = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    bare.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, pad_token="<pad>", clean_up_tokenization_spaces=False)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(directory)
    batch = tokenizer(list(RESPONSES), padding=True, return_tensors="pt")
    columns = {name: [value] * len(RESPONSES) for name, value in SAMPLE.items()}
    prompts = torch.ones(len(RESPONSES), 1, dtype=torch.int64)
    mask = torch.cat([prompts, batch["attention_mask"]], dim=1)
    tensors = {"prompts": prompts, "responses": batch["input_ids"], "attention_mask": mask}
    return DataProto.from_dict(tensors=tensors, non_tensors=columns)


def from_python(config: RewardLoopConfig | dict[str, Any], data: DataProto) -> list[float]:
    """Return each sample's reward."""
    with RewardLoopManager(config) as manager:
        batch: Any = manager.compute_rm_score(data).batch
    return [float(reward) for reward in batch["rm_scores"].sum(-1)]


def from_command_line(config: str, directory: Path) -> list[float]:
    """Return each sample's reward, by `reward-loop score` at the root of the repository."""
    rollouts, scored = directory / "rollouts.jsonl", directory / "scored.jsonl"
    rows = [json.dumps({"response": response, **SAMPLE}) for response in RESPONSES]
    rollouts.write_text("\n".join(rows), encoding="utf-8")
    command = [sys.executable, "-m", "reward_loop.cli.main", "score", str(rollouts), "-o", str(scored), "--overwrite"]
    ended = subprocess.run(
        [*command, "--config", str(HERE / config)], cwd=HERE.parents[1], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        sys.exit(ended.stderr)
    return [json.loads(line)["reward"] for line in scored.read_text("utf-8").splitlines()]


def manager_of(file: str, name: str, **reward_kwargs: Any) -> dict[str, Any]:
    """Return the configuration of a manager class in a file."""
    manager = {"source": "importlib", "module": {"path": str(HERE / file)}, "name": name}
    return {"reward_model": {"reward_manager": manager, "reward_kwargs": reward_kwargs}}


def main() -> None:
    """Print a row per rollout and a column per way."""
    with tempfile.TemporaryDirectory() as directory:
        tokens, tokenizer = token_rollouts(directory), {"actor_rollout_ref": {"model": {"path": directory}}}
        repetition = manager_of("repetition_penalty.py", "RepetitionPenaltyManager", ngram=2, penalty=0.5)
        tournament = load_config(HERE / "tournament.yaml", overrides=[f"custom_reward_function.path={HERE / 'tournament.py'}"])
        columns = {
            "penalty": from_python(repetition, text_rollouts()),
            "penalty, cli": from_command_line("repetition_penalty.yaml", Path(directory)),
            "weighted": from_python({**manager_of("verl_style.py", "WeightedManager"), **tokenizer}, tokens),
            "tournament": from_python(tournament, text_rollouts()),
        }
    print(f"{'response':<34}" + "".join(f"{name:>17}" for name in columns))
    for response, *rewards in zip(RESPONSES, *columns.values(), strict=True):
        print(f"{response:<34}" + "".join(f"{reward:>17.2f}" for reward in rewards))


if __name__ == "__main__":
    main()

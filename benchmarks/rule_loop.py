"""Speed of the whole loop for millisecond rules and for slow async functions, as ratios within one run.

python benchmarks/rule_loop.py [--rollouts FILE] [--repeat 4] [--rounds 5]

Contestants, all from token ids to `rm_scores`, the `naive` manager and the gsm8k rule:
- loop:   `RewardLoopManager.compute_rm_score`
- plain:  trim the padding, `tokenizer.batch_decode`, the rule, place the score, in one process and one thread
- verl:   the shape of verl's reward loop: a task per sample, a slice of the batch per sample (a TensorDict each, and its item),
          one executor call to decode and one to score, `gather`, then assembly
Rounds take turns, so that what else the machine does hits all of them; each ratio is of the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from reward_loop import DataProto, RewardLoopManager
from reward_loop.functions.gsm8k import compute_score


class Rollout(NamedTuple):
    """One answer to one question."""

    question: str
    solution: str
    ground_truth: str


MARKER = "A:"
SOLVERS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
DEFAULT_ROLLOUTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k" / "example_model_solutions.jsonl"


def read_rollouts(path: Path) -> list[Rollout]:
    """Return every rollout in the file."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [
        Rollout(row["question"], row[solver]["solution"], row["ground_truth"].rsplit("A: ", 1)[1])
        for row in rows
        for solver in SOLVERS
    ]


def made_rollouts(count: int) -> list[Rollout]:
    """Return rollouts of about the same length where the real ones are absent."""
    text = "She bakes {0} muffins and sells {1} of them, so she has {0} - {1} = <<{0}-{1}={2}>>{2} left.\n" * 4
    return [
        Rollout("How many are left? " * 10, text.format(i % 90 + 9, i % 9, i % 90 + 9 - i % 9) + f"A: {i % 90}", str(i % 90))
        for i in range(count)
    ]


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Train a small byte-level BPE tokenizer on the rollouts themselves."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=4000, special_tokens=["<pad>", "<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    )


def build_batch(rollouts: list[Rollout], tokenizer: Any) -> DataProto:
    """Return the rollouts as token ids: left-padded prompts, right-padded responses."""
    prompts, prompt_mask = padded([tokenizer.encode(rollout.question) for rollout in rollouts], left=True)
    responses, response_mask = padded([tokenizer.encode(rollout.solution) for rollout in rollouts], left=False)
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": responses,
            "attention_mask": torch.cat([prompt_mask, response_mask], dim=1),
        },
        non_tensors={
            "data_source": ["openai/gsm8k"] * len(rollouts),
            "reward_model": [{"style": "rule", "ground_truth": rollout.ground_truth} for rollout in rollouts],
            "extra_info": [{"split": "test", "index": row} for row in range(len(rollouts))],
        },
    )


def padded(ids: list[list[int]], *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (ids, mask), both int64 [rows, longest]."""
    width = max(map(len, ids))
    tokens, mask = np.zeros((len(ids), width), np.int64), np.zeros((len(ids), width), np.int64)
    for row, row_ids in enumerate(ids):
        place = slice(width - len(row_ids), width) if left else slice(0, len(row_ids))
        tokens[row, place], mask[row, place] = row_ids, 1
    return torch.from_numpy(tokens), torch.from_numpy(mask)


def plain(data: DataProto, tokenizer: Any) -> torch.Tensor:
    """Decode the batch and score it in one plain loop."""
    batch: Any = data.batch
    responses = batch["responses"].numpy()
    lengths = batch["attention_mask"][:, -responses.shape[1] :].sum(-1).numpy()
    ids = [row[:length].tolist() for row, length in zip(responses, lengths, strict=True)]
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    infos = data.non_tensor_batch["reward_model"]
    rewards = [compute_score(text, info["ground_truth"], marker=MARKER) for text, info in zip(texts, infos, strict=True)]
    scores = torch.zeros(responses.shape, dtype=torch.float32)
    scores[torch.arange(len(rewards)), torch.from_numpy(lengths) - 1] = torch.tensor(rewards)
    return scores


class Part:
    """A batch as verl slices it: every column at once, checked for one length."""

    def __init__(self, batch: TensorDict, columns: dict[str, Any]) -> None:
        self.batch, self.columns = batch, columns
        for name, column in columns.items():
            if not isinstance(column, np.ndarray) or column.shape[0] != batch.batch_size[0]:
                raise ValueError(name)

    def __getitem__(self, rows: slice) -> Part:
        return Part(self.batch[rows], {name: column[rows] for name, column in self.columns.items()})


async def verl_shape(data: Part, tokenizer: Any) -> torch.Tensor:
    """Score the way verl's reward loop does (its structure, not its code)."""
    loop = asyncio.get_running_loop()
    width = data.batch["responses"].shape[1]

    async def run_single(part: Part) -> dict[str, Any]:
        item = part.batch[0]
        info = {name: column[0] for name, column in part.columns.items()}
        length = item["attention_mask"][-width:].sum()
        ids = item["responses"][:length]
        text = await loop.run_in_executor(None, lambda: tokenizer.decode(ids, skip_special_tokens=True))
        truth = info["reward_model"]["ground_truth"]
        score = await loop.run_in_executor(None, lambda: compute_score(text, truth, marker=MARKER))
        return {"reward_score": score, "reward_extra_info": {"acc": score}}

    tasks = [asyncio.create_task(run_single(data[row : row + 1])) for row in range(len(data.batch))]
    results = await asyncio.gather(*tasks)
    scores = torch.zeros(data.batch["responses"].shape, dtype=torch.float32)
    lengths = data.batch["attention_mask"][:, -width:].sum(-1)
    scores[torch.arange(len(results)), lengths - 1] = torch.tensor([result["reward_score"] for result in results])
    return scores


async def slow(solution_str: str) -> float:
    """A judge that takes a second."""
    await asyncio.sleep(1.0)
    return float(bool(solution_str))


def timed(function: Callable[[], torch.Tensor]) -> tuple[float, torch.Tensor]:
    """Return the seconds that a call took, and its result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def report(name: str, seconds: list[float], samples: int) -> float:
    """Print a contestant's median and return it."""
    median = statistics.median(seconds)
    spread = f"{min(seconds) / samples * 1e6:.1f} to {max(seconds) / samples * 1e6:.1f}"
    print(f"{name:6} {median / samples * 1e6:8.1f} us per sample ({spread}), {samples / median:10,.0f} samples/s")
    return median


def main() -> int:
    """Run the benchmark; the exit code says whether the targets were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=Path, default=DEFAULT_ROLLOUTS)
    parser.add_argument("--repeat", type=int, default=4, help="how often each rollout is in the batch")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    real = arguments.rollouts.is_file()
    rollouts = (read_rollouts(arguments.rollouts) if real else made_rollouts(5276)) * arguments.repeat
    print(f"{len(rollouts)} rollouts, {'real' if real else 'made (the real ones are not there)'}")
    tokenizer = train_tokenizer([rollout.solution for rollout in rollouts[:5276]])
    data = build_batch(rollouts, tokenizer)
    with tempfile.TemporaryDirectory() as directory:
        tokenizer.save_pretrained(directory)
        config = {
            "actor_rollout_ref": {"model": {"path": directory}},
            "custom_reward_function": {"reward_kwargs": {"marker": MARKER}},
        }
        met = compare(data, tokenizer, config, arguments.rounds)
        return 0 if met & slow_async(data, config) else 1


def compare(data: DataProto, tokenizer: Any, config: dict[str, Any], rounds: int) -> bool:
    """Time the contestants in turns, check that they agree, and print the ratios."""
    part = Part(data.batch, data.non_tensor_batch)  # type: ignore[arg-type]
    seconds: dict[str, list[float]] = {"loop": [], "plain": [], "verl": []}
    with RewardLoopManager(config) as manager:
        contestants: dict[str, Callable[[], torch.Tensor]] = {
            "plain": lambda: plain(data, tokenizer),
            "loop": lambda: manager.compute_rm_score(data).batch["rm_scores"],  # type: ignore[index]
            "verl": lambda: asyncio.run(verl_shape(part, tokenizer)),
        }
        expected = {name: run() for name, run in contestants.items()}  # also the warm-up
        for round_number in range(rounds):
            for name, run in contestants.items():
                if name == "verl" and round_number >= 2:  # it takes long, and its ratio is far from the target
                    continue
                took, scores = timed(run)
                seconds[name].append(took)
                if not torch.equal(scores, expected["plain"]):
                    raise SystemExit(f"{name} disagrees with plain")
    medians = {name: report(name, times, len(data)) for name, times in seconds.items()}
    of_plain, of_verl = medians["plain"] / medians["loop"], medians["verl"] / medians["loop"]
    print(f"loop has {of_plain:.2f} of plain's throughput (target 0.7) and {of_verl:.1f} x verl's (target 10)")
    return of_plain >= 0.7 and of_verl >= 10


def slow_async(data: DataProto, config: dict[str, Any]) -> bool:
    """Time 1,000 samples of a function that takes a second each."""
    part = data[:1000]
    with RewardLoopManager({"actor_rollout_ref": config["actor_rollout_ref"]}, compute_score=slow) as manager:
        score = lambda: manager.compute_rm_score(part).batch["rm_scores"]  # type: ignore[index]  # noqa: E731
        seconds = [timed(score)[0] for _ in range(7)]
    median = statistics.median(seconds)
    print(f"1,000 samples of a 1 s async function: {median:.3f} s ({min(seconds):.3f} to {max(seconds):.3f}; target 1.2)")
    return median <= 1.2


if __name__ == "__main__":
    sys.exit(main())

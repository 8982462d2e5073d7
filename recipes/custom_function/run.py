"""Scores a few rollouts with each function of `rewards.py` and prints a table.

python recipes/custom_function/run.py
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from reward_loop import DataProto, RewardLoopManager

REWARDS = Path(__file__).with_name("rewards.py")
RESPONSES = ("42", "the answer is 42 please", "no no no", "who knows", "")
PAD = 0


def tiny_tokenizer(directory: str) -> PreTrainedTokenizerFast:
    """Save a tokenizer of whole words to `directory`, in place of the policy's; return it."""
    words = dict.fromkeys(word for response in RESPONSES for word in response.split())
    vocabulary = {"<pad>": PAD, **{word: number for number, word in enumerate(words, start=1)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", clean_up_tokenization_spaces=False)  # type: ignore[no-untyped-call]
    wrapped.save_pretrained(directory)
    return wrapped


def rollouts(tokenizer: PreTrainedTokenizerFast) -> DataProto:
    """Return the responses as a trainer holds them: token ids, padded on the right, with a mask over prompt and response."""
    ids = [tokenizer(response)["input_ids"] for response in RESPONSES]
    width = max(map(len, ids))
    prompt = torch.ones(len(ids), 1, dtype=torch.int64)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    return DataProto.from_dict(
        tensors={
            "prompts": prompt,
            "responses": torch.tensor([[*row, *[PAD] * (width - len(row))] for row in ids]),
            "attention_mask": torch.cat([prompt, mask], dim=1),
        },
        non_tensors={
            "data_source": ["six times seven"] * len(ids),
            "reward_model": [{"ground_truth": "42"}] * len(ids),
            "extra_info": [{"politeness_weight": 0.5}] * len(ids),
        },
    )


@asynccontextmanager
async def judge() -> AsyncGenerator[str]:
    """Run a judge on a free port of this machine; yields its URL."""

    async def verdict(request: web.Request) -> web.Response:
        question = await request.json()
        undecided = "who" in question["answer"]
        return web.json_response({"score": None if undecided else float(question["truth"] in question["answer"])})

    app = web.Application()
    app.router.add_post("/verdict", verdict)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/verdict"
    finally:
        await runner.cleanup()


async def score(name: str, data: DataProto, tokenizer: str, **reward_kwargs: Any) -> list[str]:
    """Return what each sample got from the function `name`, in words."""
    config = {
        "custom_reward_function": {"path": str(REWARDS), "name": name, "reward_kwargs": reward_kwargs},
        "actor_rollout_ref": {"model": {"path": tokenizer}},
    }
    with RewardLoopManager(config) as manager:
        scored = await manager.compute_rm_score_async(data)
    statuses = scored.non_tensor_batch["reward_status"]
    batch: Any = scored.batch
    totals = batch["rm_scores"].sum(-1).tolist()
    return [f"{total:.1f}" if status == "ok" else str(status) for total, status in zip(totals, statuses, strict=True)]


async def main() -> None:
    """Print a row per rollout and a column per function."""
    async with judge() as url:
        with tempfile.TemporaryDirectory() as directory:
            data = rollouts(tiny_tokenizer(directory))
            columns = {
                "exact": await score("exact", data, directory),
                "judged": await score("judged", data, directory, judge_url=url),
                "components": await score("components", data, directory),
                "per_token": await score("per_token", data, directory),
            }
    print(f"{'response':<26}" + "".join(f"{name:>12}" for name in columns))
    for response, *cells in zip(RESPONSES, *columns.values(), strict=True):
        print(f"{response or '(empty)':<26}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    asyncio.run(main())

"""How much quicker a sampler answers many calls that are made at once than one after the other.

`python benchmarks/rinker_sampling.py [--calls 64] [--repeats 3]` samples from a small policy with random weights, first with one
call at a time, then with all calls at once, and prints the ratio of the quickest runs. The calls are the same, and so are their
tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers.utils import logging

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from recipes.tiny_models import judge  # noqa: E402
from reward_loop.rinker.sampler import SampleCall, Snapshot  # noqa: E402
from reward_loop.rinker.sampling.hf_sampler import HFSampler  # noqa: E402
from reward_loop.rinker.sampling.settings import HFSamplerSettings  # noqa: E402
from reward_loop.rinker.types import ModelInput, SamplingParams  # noqa: E402

Answers = list[list[int]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    with TemporaryDirectory() as directory:
        policy = judge(Path(directory) / "policy")
        asyncio.run(measure(Snapshot("policy", str(policy)), asked.calls, asked.tokens, asked.repeats))


async def measure(snapshot: Snapshot, calls: int, tokens: int, repeats: int) -> None:
    """Run both ways by turns, so that what else the machine does meets both."""
    sampler = HFSampler(HFSamplerSettings(device="cpu"))
    asked = [
        SampleCall(ModelInput.from_ints(range(5, 13 + seed % 8)), 1, SamplingParams(max_tokens=tokens, seed=seed, stop=[]))
        for seed in range(calls)
    ]
    await sampler.sample(snapshot, asked[0])  # loads the weights
    alone: list[float] = []
    together: list[float] = []
    for _ in range(repeats):
        expected, seconds = await timed(lambda: one_by_one(sampler, snapshot, asked))
        alone.append(seconds)
        answers, seconds = await timed(lambda: at_once(sampler, snapshot, asked))
        together.append(seconds)
        if answers != expected:
            raise SystemExit("the same calls gave other tokens together than alone")
    await sampler.close()
    rate = calls * tokens
    print(f"one at a time: {min(alone):.3f} s, {rate / min(alone):.0f} tokens/s")
    print(f"at once:       {min(together):.3f} s, {rate / min(together):.0f} tokens/s")
    print(f"ratio:         {min(alone) / min(together):.1f} (target: at least 3)")


async def one_by_one(sampler: HFSampler, snapshot: Snapshot, calls: list[SampleCall]) -> Answers:
    """Wait for each answer before the next call."""
    return [(await sampler.sample(snapshot, call)).sequences[0].tokens for call in calls]


async def at_once(sampler: HFSampler, snapshot: Snapshot, calls: list[SampleCall]) -> Answers:
    """Make all calls, then wait."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sampler.sample(snapshot, call)) for call in calls]
    return [task.result().sequences[0].tokens for task in tasks]


async def timed(run: Callable[[], Awaitable[Answers]]) -> tuple[Answers, float]:
    """Return the answers and how long they took."""
    begin = time.perf_counter()
    answers = await run()
    return answers, time.perf_counter() - begin


if __name__ == "__main__":
    main()

"""What the loop makes of its reward models, as ratios within one run: throughput, judges of uneven speed, streaming.

python benchmarks/rm_loop.py [--rounds 3] [--samples 2000] [--only disrm | judge | streaming]

- disrm:     `--samples` conversations scored by one real vLLM server. loop: single samples through `RewardLoopManager.stream`
             and the router; batch: through `compute_rm_score`. hand: a client that renders 64 conversations, sends their texts in
             one request, four at a time, straight to the server. ready: the same with token ids made beforehand, which a
             loop never has. single: the loop with one request per sample (`scoring.max_batch=1`).
- judge:     `--samples` samples asked of a judge behind the router, 64 at a time, that takes lognormal times (mean 200 ms, sigma
             0.8). ideal: these very times on 64 slots, without any other cost.
- streaming: rollouts arrive over as long as it takes to score them all. stream: each is scored as it comes. after: all are
             waited for, then scored as a batch.
Rounds take turns; each ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import uvloop
from aiohttp import web

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recipes import tiny_models
from reward_loop import DataProto, RewardLoopManager, chat_complete
from reward_loop.router.process import RouterProcess
from reward_loop.router.settings import RouterSettings

HAND_BATCH, HAND_IN_FLIGHT = 64, 4
JUDGE_SLOTS, JUDGE_MEAN_S, JUDGE_SIGMA = 64, 0.200, 0.8
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu")


def rollouts(count: int, seed: int) -> DataProto:
    """Return conversations of about 45 tokens, no two alike."""
    rng = random.Random(seed)
    return DataProto.from_dict(
        non_tensors={
            "solution_str": [" ".join(rng.choices(WORDS, k=6)) for _ in range(count)],
            "raw_prompt": [[{"role": "user", "content": f"Say {rng.randrange(10**6)}."}] for _ in range(count)],
        }
    )


Conversations = Sequence[list[dict[str, str]]]
Render = Callable[[Conversations], list[Any]]
"""Returns what a request asks of conversations: texts, or token ids."""


def conversations(batch: DataProto) -> Conversations:
    """Return prompts with their responses."""
    pairs = zip(batch.non_tensor_batch["raw_prompt"], batch.non_tensor_batch["solution_str"], strict=True)
    return [[*prompt, {"role": "assistant", "content": text}] for prompt, text in pairs]


def as_texts() -> Render:
    """Return the rendering of conversations by the model's chat template."""
    tokenizer = tiny_models.tokenizer()
    return lambda chats: list(tokenizer.apply_chat_template(chats, tokenize=False))


def as_ready_ids(chats: Conversations) -> Render:
    """Return the looking up of token ids, which are made now."""
    texts = as_texts()(chats)
    ids = tiny_models.tokenizer()(texts, add_special_tokens=False)["input_ids"]
    made = {id(chat): one for chat, one in zip(chats, ids, strict=True)}
    return lambda part: [made[id(chat)] for chat in part]


def served(path: Path, **scoring: Any) -> RewardLoopManager:
    """Return a loop with one vLLM server of the model at `path`."""
    return RewardLoopManager(
        {
            "reward_model": {
                "enable": True,
                "enable_resource_pool": True,
                "model": {"path": str(path)},
                "rollout": {"dtype": "float32", "max_model_len": 1024},
                "scoring": scoring,
            }
        }
    )


async def one_by_one(batch: DataProto, every_s: float = 0.0) -> AsyncIterator[DataProto]:
    """Yield a batch's samples as a rollout loop would, the next `every_s` seconds after the one before."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    for row in range(len(batch)):
        if (early_s := started + row * every_s - loop.time()) > 0:
            await asyncio.sleep(early_s)
        yield batch[row : row + 1]


async def streamed(manager: RewardLoopManager, batch: DataProto, every_s: float = 0.0) -> float:
    """Return the seconds until every sample of a stream has its score."""
    started = time.perf_counter()
    scored = [scored async for scored in manager.stream(one_by_one(batch, every_s))]
    seconds = time.perf_counter() - started
    if len(scored) != len(batch) or any(one.outcome.status != "ok" for one in scored):
        sys.exit(f"not every sample was scored: {next(one.outcome.message for one in scored if one.outcome.status != 'ok')}")
    return seconds


async def batched(manager: RewardLoopManager, batch: DataProto) -> float:
    """Return the seconds until a whole batch has its scores."""
    started = time.perf_counter()
    await manager.compute_rm_score_async(batch)
    return time.perf_counter() - started


async def by_hand(url: str, model: str, chats: Conversations, render: Render) -> float:
    """Return the seconds that a client takes which sends requests of `HAND_BATCH`, as many as keep the server busy."""
    slots = asyncio.Semaphore(HAND_IN_FLIGHT)

    async def score(part: Conversations) -> None:
        async with slots:
            body = {"model": model, "input": render(part), "use_activation": False}
            async with session.post(f"{url}/classify", json=body) as response:
                if response.status != 200 or len((await response.json())["data"]) != len(part):
                    sys.exit(f"{url} answered {response.status}: {await response.text()}")

    started = time.perf_counter()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        for start in range(0, len(chats), HAND_BATCH):
            tasks.create_task(score(chats[start : start + HAND_BATCH]))
    return time.perf_counter() - started


def disrm(path: Path, rounds: int, samples: int) -> bool:
    """Measure the throughput of single-sample calls."""
    times: dict[str, list[float]] = {"loop": [], "batch": [], "hand": [], "ready": [], "single": []}
    with served(path) as manager, served(path, max_batch=1) as single:
        models = manager.reward_model_manager
        assert models is not None
        [url] = [replica["url"] for replica in asyncio.run(models.snapshot())["replicas"]]
        render = as_texts()
        asked: dict[str, Callable[[DataProto], Coroutine[Any, Any, float]]] = {
            "loop": lambda batch: streamed(manager, batch),
            "batch": lambda batch: batched(manager, batch),
            "hand": lambda batch: by_hand(url, str(path), conversations(batch), render),
            "ready": lambda batch: by_hand(url, str(path), chats := conversations(batch), as_ready_ids(chats)),
            "single": lambda batch: streamed(single, batch),
        }
        for number in range(-1, rounds):  # the first round warms up
            for who, ask in asked.items():
                seconds = uvloop.run(ask(rollouts(samples, seed=number)))
                if number >= 0:
                    times[who].append(seconds)
    show("disrm", times, samples)
    by_one_request_each = ratio("disrm", "loop / single, throughput", times["single"], times["loop"], least=1.8)
    return ratio("disrm", "loop / hand, throughput", times["hand"], times["loop"], least=0.9) and by_one_request_each


async def serve_judge(latencies_s: dict[str, float], ready: Connection) -> None:
    """Serve a judge that takes for each sample its own time, and tell its address, until it is told to end."""

    async def judge(request: web.Request) -> web.Response:
        key = (await request.json())["messages"][0]["content"]
        await asyncio.sleep(latencies_s[key])
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": "1"}}]})

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/chat/completions", judge)
    app.router.add_get("/health", health)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ready.send("http://{}:{}".format(*runner.addresses[0][:2]))
    await asyncio.to_thread(ready.recv)
    await runner.cleanup()


@asynccontextmanager
async def judge_behind_router(latencies_s: dict[str, float]) -> AsyncGenerator[str]:
    """Run the judge as a process of its own behind a router; give the router's address."""
    here, there = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=run_judge, args=(latencies_s, there), daemon=True)
    process.start()
    try:
        async with RouterProcess(RouterSettings()) as router:
            await router.add("judge", await asyncio.to_thread(here.recv))
            yield router.address
    finally:
        here.send("end")
        process.join()


def run_judge(latencies_s: dict[str, float], ready: Connection) -> None:
    """Be the judge's process."""
    uvloop.run(serve_judge(latencies_s, ready))


def ideal_s(latencies_s: Sequence[float]) -> float:
    """Return how long these take on `JUDGE_SLOTS` slots, each taking the next as soon as it is free."""
    free_at = [0.0] * JUDGE_SLOTS
    for latency_s in latencies_s:
        heapq.heapreplace(free_at, free_at[0] + latency_s)
    return max(free_at)


async def compute_score(solution_str: str, reward_router_address: str) -> float:
    """Ask the judge."""
    messages = [{"role": "user", "content": solution_str}]
    reply = await chat_complete(router_address=reward_router_address, chat_complete_request={"messages": messages})
    return float(reply.text)


async def judged(latencies_s: Sequence[float]) -> float:
    """Return the seconds that the loop takes to have all samples judged."""
    keys = [f"sample {number}" for number in range(len(latencies_s))]
    async with judge_behind_router(dict(zip(keys, latencies_s, strict=True))) as address:
        config = {
            "reward_model": {"max_concurrency": JUDGE_SLOTS},
            "custom_reward_function": {"reward_kwargs": {"reward_router_address": address}},
        }
        with RewardLoopManager(config, compute_score=compute_score) as manager:
            await manager.compute_rm_score_async(DataProto.from_dict(non_tensors={"solution_str": keys[:JUDGE_SLOTS]}))
            started = time.perf_counter()
            await manager.compute_rm_score_async(DataProto.from_dict(non_tensors={"solution_str": keys}))
            return time.perf_counter() - started


def judge(_: Path, rounds: int, samples: int) -> bool:
    """Measure a judge that takes lognormal times against the ideal schedule."""
    times: dict[str, list[float]] = {"loop": [], "ideal": []}
    for number in range(rounds):
        normal = np.random.default_rng(number).normal(0.0, JUDGE_SIGMA, samples)
        latencies_s = (JUDGE_MEAN_S * np.exp(normal - JUDGE_SIGMA**2 / 2)).tolist()
        times["ideal"].append(ideal_s(latencies_s))
        times["loop"].append(uvloop.run(judged(latencies_s)))
    show("judge", times, samples)
    return ratio("judge", "loop / ideal, time", times["loop"], times["ideal"], most=1.1)


def streaming(path: Path, rounds: int, samples: int) -> bool:
    """Measure scoring while rollouts come against scoring once all are there."""
    times: dict[str, list[float]] = {"scoring alone": [], "stream": [], "after": []}
    with served(path) as manager:
        uvloop.run(streamed(manager, rollouts(samples, seed=-1)))
        for number in range(rounds):
            batch = rollouts(samples, seed=number)
            started = time.perf_counter()
            manager.compute_rm_score(batch)
            times["scoring alone"].append(alone_s := time.perf_counter() - started)
            times["stream"].append(uvloop.run(streamed(manager, rollouts(samples, seed=number + 1000), alone_s / samples)))
            started = time.perf_counter()
            time.sleep(alone_s)  # the rollouts are made elsewhere
            manager.compute_rm_score(rollouts(samples, seed=number + 2000))
            times["after"].append(time.perf_counter() - started)
    show("streaming", times, samples)
    return ratio("streaming", "stream / after, time", times["stream"], times["after"], most=0.6)


def show(name: str, times: dict[str, list[float]], samples: int) -> None:
    """Print each contestant's seconds and samples per second."""
    for who, seconds in times.items():
        median_s = statistics.median(seconds)
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(f"{name:10} {who:14} {median_s:6.2f} s ({spread}), {samples / median_s:6.0f} samples/s")


def ratio(
    name: str, what: str, above: Sequence[float], below: Sequence[float], least: float = 0.0, most: float = float("inf")
) -> bool:
    """Print the median of each round's ratio, and its target; return whether it is met."""
    ratios = [one / other for one, other in zip(above, below, strict=True)]
    median = statistics.median(ratios)
    target = f"at least {least}" if least else f"at most {most}"
    print(f"{name:10} {what}: {median:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; target: {target})\n")
    return least <= median <= most


def main() -> None:
    """Measure what the command line asks for."""
    parts = {"disrm": disrm, "judge": judge, "streaming": streaming}
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--samples", type=int, default=2000)
    options.add_argument("--only", choices=parts)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = tiny_models.reward_model(Path(directory) / "tiny-reward-model")
        met = [part(path, chosen.rounds, chosen.samples) for name, part in parts.items() if chosen.only in (None, name)]
    sys.exit(not all(met))


if __name__ == "__main__":
    main()

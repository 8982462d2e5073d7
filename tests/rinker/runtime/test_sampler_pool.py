"""A pool of samplers in Ray actors: the answers of one sampler, from several, also when some are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2ForCausalLM

from reward_loop.errors import RequestFailedError
from reward_loop.loop_thread import LoopThread
from reward_loop.rinker.runtime.settings import SamplerPoolSettings
from reward_loop.rinker.sampler import SampleCall, Sampler, Snapshot
from reward_loop.rinker.sampling.hf_sampler import HFSampler
from reward_loop.rinker.types import ModelInput, SampleResponse, SamplingParams
from tests.processes import ROOT, wait_until_gone

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'reward-loop[ray]'")

from reward_loop.rinker.runtime.sampler_pool import SamplerPool  # noqa: E402 - it needs Ray

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

SETTINGS = SamplerPoolSettings(actors=2, cpus=0, max_in_flight=4)


@pytest.fixture(scope="module")
def pool(ray_cluster: None, loop: LoopThread) -> Iterator[SamplerPool]:
    pool = SamplerPool(None, SETTINGS)
    loop.run(pool.start())
    yield pool
    loop.run(pool.close())


def trained(model: str, version: int) -> Snapshot:
    policy: Any = Qwen2ForCausalLM.from_pretrained(model)
    generator = torch.Generator().manual_seed(version)
    weights = {name: value + 0.05 * torch.randn(value.shape, generator=generator) for name, value in policy.state_dict().items()}
    return Snapshot(f"trained-{version}", model, version, weights)


def call_of(seed: int | None, *, tokens: int = 6) -> SampleCall:
    return SampleCall(ModelInput.from_ints([1 + (seed or 0) % 9, 3, 4]), 2, SamplingParams(max_tokens=tokens, seed=seed, stop=[]))


Answer = tuple[list[int], list[float]]


def drawn(response: SampleResponse) -> list[Answer]:
    return [(sequence.tokens, sequence.logprobs or []) for sequence in response.sequences]


def same(some: list[list[Answer]], others: list[list[Answer]]) -> bool:
    """Whether the tokens are the same, and the log-probabilities but for the rounding that depends on what is in a batch."""
    pairs = [pair for one, other in zip(some, others, strict=True) for pair in zip(one, other, strict=True)]
    return all(mine == its and ours == pytest.approx(theirs, abs=1e-5) for (mine, ours), (its, theirs) in pairs)


async def asked(sampler: Sampler, snapshot: Snapshot, seeds: range, tokens: int = 6) -> list[list[Answer]]:
    async with asyncio.TaskGroup() as calls:
        made = [calls.create_task(sampler.sample(snapshot, call_of(seed, tokens=tokens))) for seed in seeds]
    return [drawn(task.result()) for task in made]


def one_sampler(loop: LoopThread, snapshot: Snapshot, seeds: range, tokens: int = 6) -> list[list[Answer]]:
    sampler = HFSampler()
    found = loop.run(asked(sampler, snapshot, seeds, tokens))
    loop.run(sampler.close())
    return found


def pids(pool: SamplerPool) -> list[int]:
    found: list[int] = ray.get([actor.pid.remote() for actor in pool.actors])
    return found


def test_answers_are_those_of_one_sampler_whichever_actor_gives_them(
    pool: SamplerPool, loop: LoopThread, language_model: str
) -> None:
    base = Snapshot("base", language_model)
    assert same(loop.run(asked(pool, base, range(20))), one_sampler(loop, base, range(20)))
    for version in range(1, 7):  # more than an actor keeps
        snapshot = trained(language_model, version)
        assert same(loop.run(asked(pool, snapshot, range(4))), one_sampler(loop, snapshot, range(4)))
    first = trained(language_model, 1)
    assert same(loop.run(asked(pool, first, range(4))), one_sampler(loop, first, range(4)))


def test_two_snapshots_at_once_never_mix(pool: SamplerPool, loop: LoopThread, language_model: str) -> None:
    snapshots = [trained(language_model, version) for version in (1, 2)]

    async def both() -> list[Any]:
        async with asyncio.TaskGroup() as calls:
            made = [calls.create_task(asked(pool, snapshot, range(8))) for snapshot in snapshots]
        return [task.result() for task in made]

    for answers, snapshot in zip(loop.run(both()), snapshots, strict=True):
        assert same(answers, one_sampler(loop, snapshot, range(8)))


def test_what_is_refused_is_the_callers_error(pool: SamplerPool, loop: LoopThread, language_model: str) -> None:
    bad = SampleCall(ModelInput.from_ints([99]), 1, SamplingParams(max_tokens=2))
    with pytest.raises(RequestFailedError, match="token 99") as caught:
        loop.run(pool.sample(Snapshot("base", language_model), bad))
    assert caught.value.category == "user"


def test_a_killed_sampler_is_replaced_and_its_calls_are_answered_elsewhere(
    pool: SamplerPool, loop: LoopThread, language_model: str
) -> None:
    snapshot = trained(language_model, 9)
    expected = one_sampler(loop, snapshot, range(40), 20)
    before = pids(pool)

    async def disturbed() -> Any:
        async with asyncio.TaskGroup() as calls:
            run = calls.create_task(asked(pool, snapshot, range(40), 20))
            while pool.waiting == 0:  # noqa: ASYNC110 - all places are taken: both have calls in flight
                await asyncio.sleep(0.001)
            os.kill(before[0], signal.SIGKILL)
        return run.result()

    assert same(loop.run(disturbed()), expected)
    now = pids(pool)
    assert (len(now), now[1]) == (2, before[1])
    assert now[0] != before[0]


async def test_a_pool_that_is_closed_refuses(language_model: str) -> None:
    pool = SamplerPool(None, SETTINGS)
    await pool.close()
    with pytest.raises(RequestFailedError, match="closed"):
        await pool.sample(Snapshot("base", language_model), call_of(1))


_PROGRAM = """
import asyncio, sys, ray
from reward_loop.rinker.runtime.sampler_pool import SamplerPool
from reward_loop.rinker.runtime.settings import SamplerPoolSettings

async def main():
    pool = await SamplerPool(None, SamplerPoolSettings(cpus=0)).start()
    print(*ray.get([actor.pid.remote() for actor in pool.actors]), flush=True)
    await asyncio.Event().wait()

ray.init(address=sys.argv[1], log_to_driver=False)
asyncio.run(main())
"""


def test_ctrl_c_leaves_no_process(ray_cluster: None) -> None:
    address = ray.get_runtime_context().gcs_address
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, address], cwd=Path(ROOT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert program.stdout is not None
    (pid,) = map(int, program.stdout.readline().split())
    program.send_signal(signal.SIGINT)
    program.wait(timeout=60)
    program.stdout.close()
    wait_until_gone([pid])

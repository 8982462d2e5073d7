"""Sampling from a real vLLM server: what the model itself says, by the weights that were asked for."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2ForCausalLM

from recipes import tiny_models
from reward_loop.errors import ConfigError, RequestFailedError
from reward_loop.rinker.learner import Weights
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.hf_sampler import HFSampler
from reward_loop.rinker.sampling.vllm_sampler import VLLMSampler
from reward_loop.rinker.sampling.vllm_settings import VLLMSamplerSettings
from reward_loop.rinker.types import ModelInput, SampleResponse, SamplingParams
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from reward_loop.sync.create import create_reward_publisher
from tests.vllm_servers import MAX_TOKENS, VLLMServers

pytestmark = pytest.mark.vllm

PROMPT = [40, 41, 42, 43, 44, 45]


@pytest.fixture(scope="module")
def model(vllm_servers: VLLMServers) -> str:
    return vllm_servers.model("rinker-policy", tiny_models.judge)


@pytest.fixture(scope="module")
def server(vllm_servers: VLLMServers, model: str) -> Iterator[VLLMServer]:
    running = vllm_servers.running(ServerSpec(model, "rinker-policy", "generative", max_model_len=MAX_TOKENS))
    yield running
    vllm_servers.stop(running)


@pytest.fixture
async def sampler(server: VLLMServer, model: str) -> AsyncIterator[VLLMSampler]:
    sampler = VLLMSampler([server.url], model)
    yield sampler
    await sampler.close()


@pytest.fixture
async def reference() -> AsyncIterator[HFSampler]:
    sampler = HFSampler()
    yield sampler
    await sampler.close()


def trained(model: str, seed: int) -> Weights:
    """The model's weights after some training: all of them moved."""
    policy: Any = Qwen2ForCausalLM.from_pretrained(model)
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value + 0.1 * value.std() * torch.randn(value.shape, generator=generator) if value.ndim > 1 else value.clone()
        for name, value in policy.state_dict().items()
    }


def snapshot(model: str, version: int) -> Snapshot:
    return Snapshot(f"trained-{version}", model, version, trained(model, version))


def call_of(**changes: Any) -> SampleCall:
    params = SamplingParams(max_tokens=8, temperature=0.0, seed=1)
    own = {
        name: changes.pop(name)
        for name in ("num_samples", "include_prompt_logprobs", "topk_prompt_logprobs", "topk_sample_logprobs", "prompt")
        if name in changes
    }
    call = SampleCall(ModelInput.from_ints(PROMPT), 1, dataclasses.replace(params, **changes))
    return dataclasses.replace(call, **own)


def tokens(response: SampleResponse) -> list[list[int]]:
    return [sequence.tokens for sequence in response.sequences]


def close(ours: Any, theirs: Any) -> bool:
    return bool(ours == pytest.approx(theirs, abs=1e-4))


# -- the model's own numbers ------------------------------------------------------------------------------------------


async def test_tokens_and_logprobs_are_those_of_the_published_weights(
    sampler: VLLMSampler, reference: HFSampler, model: str
) -> None:
    call = call_of(include_prompt_logprobs=True, topk_prompt_logprobs=3, topk_sample_logprobs=2)
    for served in (Snapshot("base", model), snapshot(model, 1), snapshot(model, 2)):
        ours, theirs = await sampler.sample(served, call), await reference.sample(served, call)
        assert tokens(ours) == tokens(theirs)
        assert close(ours.sequences[0].logprobs, theirs.sequences[0].logprobs)
        assert ours.prompt_logprobs is not None
        assert theirs.prompt_logprobs is not None
        assert ours.prompt_logprobs[0] is None
        assert close(ours.prompt_logprobs[1:], theirs.prompt_logprobs[1:])
        for mine, its in (
            (ours.sequences[0].topk_logprobs, theirs.sequences[0].topk_logprobs),
            (ours.topk_prompt_logprobs, theirs.topk_prompt_logprobs),
        ):
            assert mine is not None
            assert its is not None
            for some, others in zip(mine, its, strict=True):
                assert [token for token, _ in some or ()] == [token for token, _ in others or ()]
                assert close([value for _, value in some or ()], [value for _, value in others or ()])


async def test_an_older_snapshot_is_served_again_when_it_is_asked_for(sampler: VLLMSampler, model: str) -> None:
    base, newer = Snapshot("base", model), snapshot(model, 5)
    first = tokens(await sampler.sample(newer, call_of()))
    other = tokens(await sampler.sample(base, call_of()))
    assert first != other
    assert tokens(await sampler.sample(newer, call_of())) == first


async def test_weights_can_lie_in_a_directory(sampler: VLLMSampler, reference: HFSampler, model: str, tmp_path: Path) -> None:
    tiny_models.judge(tmp_path / "other", seed=7)
    saved = Snapshot("saved", model, 1, tmp_path / "other")
    assert tokens(await sampler.sample(saved, call_of())) == tokens(await reference.sample(saved, call_of()))


async def test_logprobs_are_raw_whatever_is_drawn_from(sampler: VLLMSampler, reference: HFSampler, model: str) -> None:
    served = Snapshot("base", model)
    drawn = (await sampler.sample(served, call_of(temperature=0.5, top_k=5, top_p=0.9))).sequences[0]
    whole = call_of(prompt=ModelInput.from_ints([*PROMPT, *drawn.tokens]), max_tokens=1, include_prompt_logprobs=True)
    scored = (await reference.sample(served, whole)).prompt_logprobs
    assert scored is not None
    assert close(drawn.logprobs, scored[len(PROMPT) :])


# -- what is asked for ------------------------------------------------------------------------------------------------


async def test_a_seed_draws_the_same_again_and_other_samples_differ(sampler: VLLMSampler, model: str) -> None:
    served, call = Snapshot("base", model), call_of(temperature=1.0, seed=11, num_samples=3)
    async with asyncio.TaskGroup() as calls:
        asked = [calls.create_task(sampler.sample(served, call)) for _ in range(4)]
    first, *others = [tokens(task.result()) for task in asked]
    assert len(first) == 3
    assert len(set(map(tuple, first))) == 3
    assert all(other == first for other in others)


async def test_a_stop_token_and_a_stop_text_end_a_sequence_and_are_in_it(sampler: VLLMSampler, model: str) -> None:
    served = Snapshot("base", model)
    free = (await sampler.sample(served, call_of(stop=[]))).sequences[0]
    assert (free.stop_reason, len(free.tokens)) == ("length", 8)
    third = free.tokens[2]
    cut = free.tokens.index(third) + 1
    by_token = (await sampler.sample(served, call_of(stop=[third]))).sequences[0]
    assert (by_token.stop_reason, by_token.tokens) == ("stop", free.tokens[:cut])
    assert close(by_token.logprobs, (free.logprobs or [])[:cut])
    text = tiny_models.tokenizer().decode([third])
    by_text = (await sampler.sample(served, call_of(stop=[text]))).sequences[0]
    assert by_text.stop_reason == "stop"
    assert by_text.tokens == free.tokens[: len(by_text.tokens)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt": ModelInput.empty()}, "the prompt is empty"),
        ({"prompt": ModelInput.from_ints([10_000])}, "token 10000 at position 0"),
        ({"prompt": ModelInput.from_ints([1] * 600)}, "600 tokens"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"topk_sample_logprobs": 70}, "refuses"),
    ],
)
async def test_what_can_t_be_answered_is_the_callers_error(
    sampler: VLLMSampler, model: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestFailedError, match=said) as caught:
        await sampler.sample(Snapshot("base", model), call_of(**changes))
    assert caught.value.category == "user"


async def test_a_snapshot_of_another_model_is_refused(sampler: VLLMSampler) -> None:
    with pytest.raises(RequestFailedError, match="start servers of it") as caught:
        await sampler.sample(Snapshot("other", "another-model"), call_of())
    assert caught.value.category == "user"


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="ftp"):
        VLLMSampler(["ftp://server"], "model")


# -- never a mixture, and servers that fail -----------------------------------------------------------------------------


async def test_calls_of_two_snapshots_at_once_never_mix(sampler: VLLMSampler, model: str) -> None:
    served = [snapshot(model, version) for version in (1, 2)]
    alone = [tokens(await sampler.sample(one, call_of(max_tokens=40))) for one in served]
    async with asyncio.TaskGroup() as calls:
        asked = [(n % 2, calls.create_task(sampler.sample(served[n % 2], call_of(max_tokens=40)))) for n in range(12)]
    assert all(tokens(task.result()) == alone[which] for which, task in asked)


async def test_weights_that_somebody_else_published_are_noticed(sampler: VLLMSampler, server: VLLMServer, model: str) -> None:
    mine = snapshot(model, 1)
    before = tokens(await sampler.sample(mine, call_of()))
    await create_reward_publisher([server.url], generative=True).publish_async(trained(model, 9))
    assert tokens(await sampler.sample(mine, call_of())) == before


async def test_weights_that_do_not_fit_are_refused_and_the_served_ones_stay(sampler: VLLMSampler, model: str) -> None:
    mine = snapshot(model, 1)
    before = tokens(await sampler.sample(mine, call_of()))
    bad = Snapshot("bad", model, 2, {**trained(model, 2), "model.norm.weight": torch.ones(3)})
    with pytest.raises(RequestFailedError, match="did not reach the servers") as caught:
        await sampler.sample(bad, call_of())
    assert caught.value.category == "server"
    assert tokens(await sampler.sample(mine, call_of())) == before


async def test_a_killed_server_is_an_error_and_once_back_serves_what_it_served(server: VLLMServer, model: str) -> None:
    impatient = VLLMSampler([server.url], model)
    patient = VLLMSampler([server.url], model, VLLMSamplerSettings(restart_wait_s=300.0))
    mine = snapshot(model, 3)
    before = tokens(await impatient.sample(mine, call_of()))
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(RequestFailedError, match="no server answered") as caught:
        await impatient.sample(mine, call_of())
    assert caught.value.category == "server"
    waiting = dataclasses.replace(mine, id="trained-3")
    assert tokens(await patient.sample(waiting, call_of())) == before
    assert tokens(await impatient.sample(mine, call_of())) == before

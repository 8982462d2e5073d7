from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.hf_sampler import HFSampler
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from tests.one_thread import one_thread as one_thread
from tests.rinker.conformance.tiny_policy import CONTEXT, VOCABULARY, tiny_policy
from tests.rinker.sampling.policies import call, model_of


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_policy(tmp_path_factory.mktemp("policy"), initializer_range=0.2)


@pytest.fixture
async def sampler() -> AsyncIterator[HFSampler]:
    sampler = HFSampler(HFSamplerSettings(device="cpu"))
    yield sampler
    await sampler.close()


def base(path: str) -> Snapshot:
    return Snapshot("base", path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (call([]), "the prompt is empty"),
        (call([1, VOCABULARY]), f"token {VOCABULARY} at position 1 .* not below {VOCABULARY}"),
        (call([-1]), "token -1 at position 0"),
        (call([1] * (CONTEXT + 1)), f"has {CONTEXT + 1} tokens, and the context .* is {CONTEXT}"),
        (call([1], samples=0), "num_samples=0"),
        (call([1], samples=10**9), "num_samples=1000000000; give 1 to 16384"),
        (call([1], max_tokens=0), "max_tokens=0"),
        (call([1], temperature=-0.1), "temperature=-0.1"),
        (call([1], temperature=float("nan")), "temperature=nan"),
        (call([1], top_k=0), "top_k=0"),
        (call([1], top_k=-2), "top_k=-2"),
        (call([1], top_p=0.0), "top_p=0.0"),
        (call([1], top_p=1.1), "top_p=1.1"),
        (call([1], stop=[VOCABULARY]), f"stop token {VOCABULARY}"),
        (call([1], stop=""), "an empty text among `stop`"),
        (call([1], top=VOCABULARY + 1), f"topk_sample_logprobs={VOCABULARY + 1}"),
        (call([1], stop="a text"), "has no tokenizer"),
    ],
    ids=str,
)
async def test_a_call_that_cant_be_answered_is_the_users_error(
    sampler: HFSampler, policy: str, wrong: SampleCall, message: str
) -> None:
    with pytest.raises(RequestFailedError, match=message) as refused:
        await sampler.sample(base(policy), wrong)
    assert refused.value.category == "user"


async def test_a_model_that_is_not_there_is_the_users_error(sampler: HFSampler, tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match="can't be read") as refused:
        await sampler.sample(Snapshot("a", str(tmp_path / "nowhere")), call([1]))
    assert refused.value.category == "user"


def without_head(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}


def with_another_shape(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return weights | {"lm_head.weight": torch.zeros(3, 3)}


def with_adapters(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return weights | {"model.layers.0.mlp.up_proj.lora_A.weight": torch.zeros(3, 3)}


def diverged(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return weights | {"lm_head.weight": torch.full_like(weights["lm_head.weight"], float("nan"))}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_head, r"lack \['lm_head.weight'\]"),
        (with_another_shape, "size mismatch"),
        (with_adapters, "have .*lora_A.* besides; .*adapters merged in"),
        (diverged, "did the training diverge"),
    ],
)
async def test_weights_that_cant_be_used_are_refused_and_the_sampler_goes_on(
    sampler: HFSampler, policy: str, spoil: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], message: str
) -> None:
    weights = model_of(policy).state_dict()
    with pytest.raises(RequestFailedError, match=message) as failed:
        await sampler.sample(Snapshot("spoilt", policy, weights=spoil(dict(weights))), call([1, 2]))
    assert failed.value.category == "server"
    assert (await sampler.sample(Snapshot("whole", policy, weights=weights), call([1, 2]))).sequences

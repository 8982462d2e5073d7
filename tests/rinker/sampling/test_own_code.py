"""Models that bring code of their own are sampled from where that is allowed, and not otherwise."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.runtime.build import sampler_of, training_service
from reward_loop.rinker.runtime.settings import RuntimeSettings
from reward_loop.rinker.sampler import Snapshot
from reward_loop.rinker.sampling.hf_sampler import HFSampler
from reward_loop.rinker.sampling.profile import read_profile
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.sampling.vllm_sampler import VLLMSampler
from reward_loop.rinker.sampling.vllm_weights import whole_weights
from reward_loop.rinker.service.sampler_weights import write_sampler_weights
from reward_loop.rinker.service.settings import ServiceSettings
from reward_loop.rinker.types import LoraConfig, ModelSpec
from tests.one_thread import one_thread as one_thread
from tests.rinker.sampling.own_code import policy_with_own_code
from tests.rinker.sampling.policies import call
from tests.rinker.sampling.test_vllm_fleet import Server, fleet_of

TRUSTING = EngineSettings(device="cpu", trust_remote_code=True)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return policy_with_own_code(tmp_path_factory.mktemp("own-code"))


async def test_what_the_engine_trains_is_sampled_from_memory_and_from_where_it_is_saved(policy: str, tmp_path: Path) -> None:
    engine = Engine(ModelSpec(policy), TRUSTING)
    weights = engine.weights()
    write_sampler_weights(weights, engine.spec, tmp_path / "saved", trust_remote_code=True)
    sampler = sampler_of(RuntimeSettings(), TRUSTING)
    snapshots = [Snapshot("memory", policy, 1, weights), Snapshot("directory", policy, 1, tmp_path / "saved")]
    for snapshot in [*snapshots, Snapshot("base", policy)]:
        # A text to stop at needs the tokenizer.
        response = await sampler.sample(snapshot, call([4, 5, 6], max_tokens=2, stop=["never"]))
        assert len(response.sequences[0].tokens) == 2
    await sampler.close()


async def test_a_service_trains_saves_and_samples_it(policy: str, tmp_path: Path) -> None:
    service = training_service(tmp_path, engine=TRUSTING)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(service.close)
        model = await service.create_model(ModelSpec(policy, lora=LoraConfig(4)))
        saved = await service.save_weights_for_sampler(model, 1, "saved")
        for where in ({"model_path": saved.path}, {"base_model": policy}):
            session = await service.create_sampling_session(**where)
            assert len((await service.sample(session, call([4, 5], max_tokens=2))).sequences[0].tokens) == 2


def test_a_reward_model_with_code_of_its_own_is_saved_as_one_that_loads(policy: str, tmp_path: Path) -> None:
    engine = Engine(ModelSpec(policy, "seq_cls", num_labels=2), TRUSTING)
    write_sampler_weights(engine.weights(), engine.spec, tmp_path / "saved", trust_remote_code=True)
    loaded: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved", trust_remote_code=True)
    assert loaded.config.architectures == ["OwnForSequenceClassification"]
    assert torch.equal(loaded.score.weight, engine.weights()["score.weight"])


async def test_code_that_is_not_trusted_is_not_run(policy: str) -> None:
    sampler = HFSampler(HFSamplerSettings(device="cpu"))
    with pytest.raises(RequestFailedError, match="trust_remote_code"):
        await sampler.sample(Snapshot("base", policy), call([1]))
    await sampler.close()


def test_what_vllm_servers_get_is_read_with_the_models_code(policy: str) -> None:
    assert read_profile(policy, trust_remote_code=True).context
    found = whole_weights(Snapshot("base", policy), trust_remote_code=True)
    wanted = Engine(ModelSpec(policy), TRUSTING).weights()
    assert all(torch.equal(found[name], value) for name, value in wanted.items())


async def test_a_service_may_be_the_only_one_that_trusts(policy: str, tmp_path: Path) -> None:
    service = training_service(tmp_path, engine=EngineSettings(device="cpu"), limits=ServiceSettings(trust_remote_code=True))
    assert await service.create_sampling_session(base_model=policy)
    await service.close()


async def test_the_event_loop_goes_on_while_a_model_that_vllm_serves_is_looked_up(tmp_path: Path) -> None:
    policy = Path(policy_with_own_code(tmp_path / "policy"))
    note = "import pathlib, threading; pathlib.Path({!r}).write_text(threading.current_thread().name)\n"
    with (policy / "configuration_own.py").open("a") as code:
        code.write(note.format(str(tmp_path / "thread")))
    async with fleet_of(Server()) as fleet:
        sampler = VLLMSampler(fleet.urls, str(policy), trust_remote_code=True)
        with pytest.raises(RequestFailedError, match="the prompt is empty"):
            await sampler.sample(Snapshot("base", str(policy)), call([]))
        await sampler.close()
    assert (tmp_path / "thread").read_text() != threading.current_thread().name

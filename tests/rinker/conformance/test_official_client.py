"""The official SDK, unmodified, against our server: the conformance checks, and what only it can show."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from reward_loop import rinker
from reward_loop.rinker.clients.in_process import local_service
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.server.settings import ServerSettings
from tests.rinker.conformance.checks import CHECKS, Check
from tests.rinker.conformance.copy_digits import CopyDigits
from tests.rinker.conformance.tiny_policy import tiny_policy
from tests.rinker.conformance.world import World
from tests.rinker.served import served

tinker: Any = pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

# The SDK never closes the connection by which it asks how to speak.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed (<socket|transport):ResourceWarning")

KEY = "tml-of-the-tests"


@pytest.fixture(scope="module", autouse=True)
def no_telemetry() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TINKER_TELEMETRY", "0")
        yield
    gc.collect()  # while its warnings are not errors


@pytest.fixture(scope="module")
def world(policy_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("checkpoints")
    limits = rinker.ServiceSettings(max_models=64, gap_timeout_s=30)
    plain = ServerSettings(max_models=64, api_key=SecretStr(KEY))
    chunked = ServerSettings(max_models=64, api_key=SecretStr(KEY), compress=True, max_chunk_datums=2)

    def service() -> Any:
        return local_service(directory, EngineSettings(device="cpu"), settings=limits)

    with (
        served(service, plain) as url,
        served(service, chunked) as chunking_url,
        tinker.ServiceClient(base_url=chunking_url, api_key=KEY) as chunking,
        tinker.ServiceClient(base_url=url, api_key=KEY) as client,
    ):
        yield World(tinker, client, policy_path, chunking)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance_of_the_official_client(world: World, check: Check) -> None:
    check(world)


def test_a_wrong_key_is_the_sdks_own_error(policy_path: str, tmp_path: Path) -> None:
    with served(lambda: local_service(tmp_path), ServerSettings(api_key=SecretStr(KEY))) as url:
        stranger = tinker.ServiceClient(base_url=url, api_key="tml-of-a-stranger")
        with pytest.raises(tinker.AuthenticationError, match="not the server's"):
            stranger.create_lora_training_client(base_model=policy_path)


def test_the_rest_client_sees_what_is_trained_and_what_was_saved(world: World) -> None:
    client = world.model()
    path = client.save_state("seen").result().path
    rest = tinker.RestClient(base_url=world.service._base_url, api_key=KEY)
    assert world.base_model in [model.model_name for model in rest.get_server_capabilities().result().supported_models]
    run = rest.get_training_run(client.model_id).result()
    assert (run.base_model, run.lora_rank, run.last_checkpoint.tinker_path) == (world.base_model, 4, path)
    assert [one.tinker_path for one in rest.list_checkpoints(client.model_id).result().checkpoints] == [path]
    assert rest.get_training_run_by_tinker_path(path).result().training_run_id == client.model_id
    info = rest.get_weights_info_by_tinker_path(path).result()
    assert (info.base_model, info.is_lora, info.lora_rank) == (world.base_model, True, 4)
    assert client.model_id in [one.training_run_id for one in rest.list_training_runs().result().training_runs]
    assert path in [one.tinker_path for one in rest.list_user_checkpoints().result().checkpoints]
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert rest.list_checkpoints(client.model_id).result().checkpoints == []
    with pytest.raises(tinker.NotFoundError, match="there is no checkpoint"):
        rest.get_weights_info_by_tinker_path(path).result()


def rewards_of(seed: int, iterations: int, directory: Path) -> list[float]:
    base_model = tiny_policy(directory / "policy", seed=seed)
    with (
        served(lambda: local_service(directory / "checkpoints", EngineSettings(device="cpu"))) as url,
        tinker.ServiceClient(base_url=url, api_key=KEY) as service,
    ):
        client = service.create_lora_training_client(base_model, rank=32, seed=seed).result()
        return CopyDigits(batch=16, group=16, learning_rate=2e-3, seed=seed).train(tinker, client, iterations)


def test_a_policy_begins_to_copy_three_digits(tmp_path: Path) -> None:
    rewards = rewards_of(0, 50, tmp_path)
    assert sum(rewards[:10]) / 10 < 0.15
    assert sum(rewards[-5:]) / 5 > 0.25


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_policy_learns_to_copy_three_digits_within_three_minutes(seed: int, tmp_path: Path) -> None:
    begin = time.monotonic()
    rewards = rewards_of(seed, 160, tmp_path)
    assert sum(rewards[:10]) / 10 < 0.15
    assert sum(rewards[-10:]) / 10 > 0.9
    assert time.monotonic() - begin < 180

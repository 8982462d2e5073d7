"""A service behind HTTP is asked what the service in this process is asked, and answers the same."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from reward_loop.errors import AuthenticationError, ConfigError, RequestFailedError

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.backend import Backend
from reward_loop.rinker.remote.http_backend import HttpBackend
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings
from reward_loop.rinker.types import AdamParams, Datum, LoraConfig, ModelInput, ModelSpec, SamplingParams, TensorData
from tests.rinker.recording_backend import RecordingBackend

DATUM = Datum(ModelInput.from_ints([1, 2, 3]), {"target_tokens": TensorData([2, 3, 4], "int64")})
CALL = SampleCall(ModelInput.from_ints([1, 2]), 2, SamplingParams(max_tokens=1, stop=[7]), True, 1, 2)


@contextlib.asynccontextmanager
async def connected(
    key: str | None = None, client: HttpSettings | None = None, **settings: Any
) -> AsyncGenerator[tuple[HttpBackend, RecordingBackend]]:
    """Give a backend behind HTTP, and what it is at the other end."""
    behind = RecordingBackend()
    async with serving(behind, ServerSettings.model_validate({"port": 0, "poll_s": 5.0} | settings)) as url:
        backend = HttpBackend(url, key, client)
        try:
            yield backend, behind
        finally:
            await backend.close()


async def test_it_is_a_backend() -> None:
    backend: Backend = HttpBackend("http://127.0.0.1:1/")
    assert isinstance(backend, HttpBackend)
    assert backend.base_url == "http://127.0.0.1:1"
    await backend.close()


async def test_models_are_made_described_and_unloaded() -> None:
    async with connected() as (backend, behind):
        spec = ModelSpec("base", "seq_cls", LoraConfig(4, seed=2, train_mlp=False, alpha=8.0), num_labels=2, seed=3)
        model = await backend.create_model(spec, {"run": "a"})
        assert behind.asked("create_model") == [("create_model", spec, {"run": "a"})]
        assert (await backend.get_info(model)) == await behind.get_info(model)
        other = await backend.create_model_from_state("tinker://m/weights/a", optimizer=True, user_metadata={"k": 1})
        assert other != model
        assert behind.asked("create_model_from_state") == [
            ("create_model_from_state", "tinker://m/weights/a", True, None, {"k": 1})
        ]
        await backend.unload_model(model)
        assert behind.asked("unload_model") == [("unload_model", model)]
        assert await backend.capabilities() == await behind.capabilities()


@pytest.mark.parametrize("compress", [False, True])
async def test_operations_are_asked_behind_as_they_were_asked_here(compress: bool) -> None:
    async with connected(compress=compress) as (backend, behind):
        model = await backend.create_model(ModelSpec("base"))
        passed = await backend.forward_backward(model, 1, [DATUM], "ppo", {"beta": 0.5}, forward_only=True)
        assert passed.loss_fn_outputs[0]["logprobs"].tolist() == [-1.0, -1.0, -1.0]
        assert passed.metrics == {"loss:sum": 1.0}
        stepped = await backend.optim_step(model, 2, AdamParams(learning_rate=0.5))
        assert stepped.metrics is not None
        assert math.isnan(stepped.metrics["grad_norm"])
        saved = await backend.save_state(model, 3, "a", overwrite=True, ttl_seconds=9, user_metadata={"k": "v"})
        assert saved.path == f"tinker://{model}/weights/a"
        await backend.load_state(model, 4, saved.path, optimizer=False)
        named = await backend.save_weights_for_sampler(model, 5, "b")
        assert (named.path, named.sampling_session_id) == (f"tinker://{model}/sampler_weights/b", None)
        session = await backend.save_weights_for_sampler(model, 6, None, "inflight")
        assert (session.path, session.sampling_session_id) == (None, "sampler-1")
        assert behind.calls[1:] == [
            ("forward_backward", model, 1, [DATUM], "ppo", {"beta": 0.5}, True),
            ("optim_step", model, 2, AdamParams(learning_rate=0.5)),
            ("save_state", model, 3, "a", True, 9, {"k": "v"}),
            ("load_state", model, 4, saved.path, False),
            ("save_weights_for_sampler", model, 5, "b", "snapshot", None, None),
            ("save_weights_for_sampler", model, 6, None, "inflight", None, None),
        ]


async def test_sampling_is_asked_behind_as_it_was_asked_here() -> None:
    async with connected() as (backend, behind):
        session = await backend.create_sampling_session(model_path="tinker://m/weights/a", base_model="base")
        assert behind.asked("create_sampling_session") == [("create_sampling_session", "tinker://m/weights/a", None)]
        assert await backend.sampling_session_model(session) == "base"
        response = await backend.sample(session, CALL)
        assert behind.asked("sample") == [("sample", session, CALL)]
        assert [one.tokens for one in response.sequences] == [[0], [1]]
        assert len({one.sequence_id for one in response.sequences}) == 2
        await backend.close_sampling_session(session)
        assert behind.asked("close_sampling_session") == [("close_sampling_session", session)]


async def test_two_clients_of_one_sampling_session_get_each_what_it_asked_for() -> None:
    async with connected() as (backend, behind):
        session = await backend.create_sampling_session(base_model="base")
        other = HttpBackend(backend.base_url)
        for number, client in enumerate((backend, other, backend, other)):
            call = SampleCall(ModelInput.from_ints([number]), 1 + number, SamplingParams())
            assert len((await client.sample(session, call)).sequences) == 1 + number
        assert len(behind.asked("sample")) == 4
        await other.close()


async def test_a_sample_that_is_cancelled_here_is_given_up_there() -> None:
    async with connected(client=HttpSettings(heartbeat_s=0.01)) as (backend, behind):
        session = await backend.create_sampling_session(base_model="base")
        behind.open.clear()
        sampling = asyncio.create_task(backend.sample(session, CALL))
        while not behind.asked("sample"):
            await backend.capabilities()
        sampling.cancel()
        while behind.given_up == 0:
            await backend.capabilities()
        with pytest.raises(asyncio.CancelledError):
            await sampling


async def test_what_takes_longer_than_a_request_waits_is_asked_for_again() -> None:
    async with connected(poll_s=0.01, client=HttpSettings(wait_s=0)) as (backend, behind):
        session = await backend.create_sampling_session(base_model="base")
        behind.open.clear()
        async with asyncio.TaskGroup() as group:
            sampling = group.create_task(backend.sample(session, CALL))
            for _ in range(10):
                await backend.capabilities()
            behind.open.set()
        assert len(sampling.result().sequences) == 2
        assert len(behind.asked("sample")) == 1


@pytest.mark.parametrize("category", ["user", "server", "unknown"])
async def test_an_error_behind_is_the_same_error_here(category: str) -> None:
    async with connected() as (backend, behind):
        model = await backend.create_model(ModelSpec("base"))
        behind.failure = RequestFailedError("no such loss", category=category)
        with pytest.raises(RequestFailedError, match=r"^no such loss$") as failed:
            await backend.forward_backward(model, 1, [DATUM], "x")
        assert failed.value.category == category


async def test_a_key_that_the_server_does_not_know_is_refused() -> None:
    async with connected("tml-wrong", api_key="tml-right") as (backend, _):
        with pytest.raises(AuthenticationError, match="refused the API key") as refused:
            await backend.capabilities()
        assert "tml-wrong" not in str(refused.value)


async def test_what_is_not_there_is_the_users_error() -> None:
    async with connected() as (backend, _):
        for call in (backend.get_info("nobody"), backend.sampling_session_model("nobody"), backend.sample("nobody", CALL)):
            with pytest.raises(RequestFailedError, match="404") as failed:
                await call
            assert failed.value.category == "user"


async def test_a_server_names_its_models_itself() -> None:
    async with connected() as (backend, _):
        with pytest.raises(RequestFailedError, match="names its models itself"):
            await backend.create_model(ModelSpec("base"), model_id="mine")


async def test_what_can_not_be_sent_is_the_users_error_and_takes_its_place_in_the_order() -> None:
    async with connected() as (backend, behind):
        model = await backend.create_model(ModelSpec("base"))
        negative = Datum(ModelInput.from_ints([-1]), {})
        calls = (
            backend.forward_backward(model, 1, [negative], "cross_entropy"),
            backend.optim_step(model, 2, AdamParams(learning_rate=math.nan)),
            backend.save_state(model, 3, ""),
        )
        for call in calls:
            with pytest.raises(RequestFailedError) as failed:
                await call
            assert failed.value.category == "user"
        assert [(call[2], call[3]) for call in behind.asked("forward_backward")] == [(1, []), (2, []), (3, [])]


@pytest.mark.parametrize("spec", [ModelSpec(""), ModelSpec("base", lora=LoraConfig(rank="8"))])  # type: ignore[arg-type]
async def test_a_model_that_can_not_be_asked_for_is_the_users_error(spec: ModelSpec) -> None:
    async with connected() as (backend, _):
        with pytest.raises(RequestFailedError, match="can't be sent as CreateModel") as failed:
            await backend.create_model(spec)
        assert failed.value.category == "user"


async def test_metadata_that_json_has_no_words_for_are_the_users_error() -> None:
    async with connected() as (backend, _):
        with pytest.raises(RequestFailedError, match="can't be sent as CreateModel"):
            await backend.create_model(ModelSpec("base"), {"what": object()})


async def test_a_large_pass_is_refused_with_a_reason_and_takes_its_place_in_the_order() -> None:
    async with connected(max_body_mb=1) as (backend, behind):
        model = await backend.create_model(ModelSpec("base"))
        large = Datum(ModelInput.from_ints(range(1000)), {"weights": TensorData([0.0] * (1 << 19), "float32")})
        with pytest.raises(RequestFailedError, match=r"413.*in several parts"):
            await backend.forward_backward(model, 1, [large], "cross_entropy")
        assert [(call[2], call[3]) for call in behind.asked("forward_backward")] == [(1, [])]


async def test_closing_finishes_the_session() -> None:
    async with connected() as (backend, behind):
        model = await backend.create_model(ModelSpec("base"))
        await backend.close()
        assert behind.asked("unload_model") == [("unload_model", model)]
        await backend.close()


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://host", "http://", "", "http://["])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        HttpBackend(url)

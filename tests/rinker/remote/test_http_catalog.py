"""The lists of a service behind HTTP are those of the service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from reward_loop import rinker
from reward_loop.errors import RequestFailedError

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.remote.http_backend import HttpBackend
from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings
from reward_loop.rinker.service.training_service import TrainingService
from reward_loop.rinker.types import LoraConfig, ModelSpec, WeightsInfoResponse
from tests.rinker.recording_backend import RecordingBackend
from tests.rinker.service.scripted_service import kept_for_sampler, scripted_service

SPEC = ModelSpec("base", lora=LoraConfig(8, train_mlp=False))


@contextlib.asynccontextmanager
async def connected(directory: Path) -> AsyncGenerator[tuple[HttpBackend, TrainingService]]:
    """Give a service behind HTTP, and the service itself."""
    service = scripted_service(directory)
    async with serving(service, ServerSettings(port=0)) as url:
        backend = HttpBackend(url)
        try:
            yield backend, service
        finally:
            await backend.close()
            await service.close()


async def trained(backend: HttpBackend, service: TrainingService, name: str = "a") -> str:
    """Make a model, and save it for both uses."""
    model = await backend.create_model(SPEC, {"run": name, "number": 7})
    await backend.save_state(model, 1, name, ttl_seconds=9, user_metadata={"k": "v"})
    await kept_for_sampler(service, model, name)
    return model


async def test_what_was_saved_is_listed_as_the_service_lists_it(tmp_path: Path) -> None:
    async with connected(tmp_path) as (backend, service):
        first, second = await trained(backend, service), await trained(backend, service, "b")
        listed = await backend.checkpoints(first)
        assert listed == await service.checkpoints(first)
        newest, oldest = listed.checkpoints
        assert (newest.tinker_path, newest.checkpoint_type) == (f"tinker://{first}/sampler_weights/a", "sampler")
        assert (oldest.checkpoint_id, oldest.user_metadata) == ("weights/a", {"k": "v"})
        assert oldest.expires_at is not None
        assert (oldest.expires_at - oldest.time).total_seconds() == 9
        part = await backend.all_checkpoints(limit=2, offset=1)
        assert part == await service.all_checkpoints(limit=2, offset=1)
        assert [one.tinker_path for one in part.checkpoints] == [f"tinker://{second}/weights/b", newest.tinker_path]
        assert part.cursor == rinker.types.Cursor(1, 2, 4)
        assert (await backend.checkpoints("nobody")).checkpoints == []


async def test_what_is_trained_is_described_as_the_service_describes_it(tmp_path: Path) -> None:
    async with connected(tmp_path) as (backend, service):
        first, second = await trained(backend, service), await trained(backend, service, "b")
        run = await backend.training_run(first)
        assert run == await service.training_run(first)
        assert (run.base_model, run.lora_rank, run.user_metadata) == ("base", 8, {"run": "a", "number": 7})
        assert run.last_checkpoint is not None
        assert run.last_checkpoint.tinker_path == f"tinker://{first}/weights/a"
        runs = await backend.training_runs(limit=1, offset=1)
        assert runs == await service.training_runs(limit=1, offset=1)
        assert [one.training_run_id for one in runs.training_runs] == [first]
        assert (await backend.training_runs(limit=5, offset=0)).training_runs[0].training_run_id == second


async def test_what_was_saved_outlives_the_model_until_it_is_removed(tmp_path: Path) -> None:
    async with connected(tmp_path) as (backend, service):
        model = await trained(backend, service)
        await backend.unload_model(model)
        path = f"tinker://{model}/weights/a"
        assert await backend.weights_info(path) == WeightsInfoResponse("base", True, 8, True, False, True)
        await backend.delete_checkpoint(path)
        assert [one.checkpoint_id for one in (await backend.checkpoints(model)).checkpoints] == ["sampler_weights/a"]
        with pytest.raises(RequestFailedError, match="there is no checkpoint"):
            await backend.delete_checkpoint(path)


async def test_the_rest_client_of_a_server_does_what_that_of_a_service_does(tmp_path: Path) -> None:
    async with connected(tmp_path) as (backend, service):
        model = await trained(backend, service)
        with rinker.RestClient(base_url=backend.base_url) as rest:
            newest, oldest = (await rest.list_checkpoints(model)).checkpoints
            assert await rest.list_checkpoints_async(model) == await rest.list_checkpoints(model)
            assert (await rest.list_user_checkpoints(limit=1)).checkpoints == [newest]
            assert (await rest.list_training_runs()).training_runs == [await rest.get_training_run(model)]
            assert (await rest.get_training_run_by_tinker_path(oldest.tinker_path)).last_checkpoint == oldest
            assert (await rest.get_weights_info_by_tinker_path(oldest.tinker_path)).base_model == "base"
            await rest.delete_checkpoint(model, oldest.checkpoint_id)
            await rest.delete_checkpoint_from_tinker_path(newest.tinker_path)
            assert (await rest.list_user_checkpoints()).checkpoints == []


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "tinker://m/weights",
        "tinker://m/other/a",
        "tinker://m/weights/..",
        "tinker://../weights/a",
        "tinker://m/weights/a",
    ],
)
async def test_a_path_of_nothing_is_the_users_error(tmp_path: Path, path: str) -> None:
    async with connected(tmp_path) as (backend, service):
        model = await trained(backend, service)
        for catalog in (backend, service):
            for call in (catalog.delete_checkpoint(path), catalog.weights_info(path)):
                with pytest.raises(RequestFailedError) as failed:
                    await call
                assert failed.value.category == "user"
        assert len((await backend.checkpoints(model)).checkpoints) == 2


@pytest.mark.parametrize("name", ["nobody", "", "..", "a/b", "a?b=c"])
async def test_a_model_that_is_not_there_is_the_users_error(tmp_path: Path, name: str) -> None:
    async with connected(tmp_path) as (backend, service):
        for catalog in (backend, service):
            with pytest.raises(RequestFailedError) as failed:
                await catalog.training_run(name)
            assert failed.value.category == "user"


@pytest.mark.parametrize("name", ["", "..", "a/b"])
async def test_what_can_be_no_models_name_has_no_list(tmp_path: Path, name: str) -> None:
    async with connected(tmp_path) as (backend, service):
        for catalog in (backend, service):
            with pytest.raises(RequestFailedError, match="model id") as failed:
                await catalog.checkpoints(name)
            assert failed.value.category == "user"


@pytest.mark.parametrize(("limit", "offset"), [(-1, 0), (1, -1)])
async def test_a_part_that_is_none_is_the_users_error(tmp_path: Path, limit: int, offset: int) -> None:
    async with connected(tmp_path) as (backend, service):
        for catalog in (backend, service):
            for call in (catalog.all_checkpoints, catalog.training_runs):
                with pytest.raises(RequestFailedError, match=r"must be (a number from 0|0 or more)") as failed:
                    await call(limit=limit, offset=offset)
                assert failed.value.category == "user"


async def test_a_server_whose_backend_has_no_lists_says_so() -> None:
    async with serving(RecordingBackend(), ServerSettings(port=0)) as url:
        backend = HttpBackend(url)
        with pytest.raises(RequestFailedError, match="RecordingBackend, which is served here, has no list") as failed:
            await backend.training_run("a")
        assert failed.value.category == "user"
        await backend.close()

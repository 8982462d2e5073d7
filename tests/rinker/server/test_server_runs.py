"""What a server says of its models and of what was saved of them, as the SDK reads it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

import tinker.types

from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings
from reward_loop.rinker.types import LoraConfig, ModelSpec
from tests.rinker.service.scripted_service import kept_for_sampler, scripted_service


class Looker:
    """Asks about the one model that there is, and what was saved of it."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        async with self._client.request(method, f"/api/v1{path}", json=body) as response:
            return response.status, await response.json()


@contextlib.asynccontextmanager
async def looking(directory: Path) -> AsyncGenerator[Looker]:
    service = scripted_service(directory)
    async with (
        serving(service, ServerSettings(port=0)) as url,
        aiohttp.ClientSession(url, headers={"X-API-Key": "tml-test"}) as client,
    ):
        await service.create_model(ModelSpec("base", lora=LoraConfig(8)), {"run": "1"}, model_id="m")
        await service.save_state("m", 1, "a")
        await kept_for_sampler(service, "m", "b")
        yield Looker(client)
    await service.close()


async def test_the_sdk_can_read_every_list(tmp_path: Path) -> None:
    async with looking(tmp_path) as looker:
        _, listed = await looker.ask("GET", "/training_runs/m/checkpoints")
        checkpoints = tinker.types.CheckpointsListResponse.model_validate(listed).checkpoints
        assert [(one.checkpoint_id, one.checkpoint_type) for one in checkpoints] == [
            ("sampler_weights/b", "sampler"),
            ("weights/a", "training"),
        ]
        _, listed = await looker.ask("GET", "/checkpoints?limit=1&offset=1")
        part = tinker.types.CheckpointsListResponse.model_validate(listed)
        assert part.checkpoints == checkpoints[1:]
        assert part.cursor is not None
        assert part.cursor.total_count == 2
        _, described = await looker.ask("GET", "/training_runs/m?access_scope=owned")
        run = tinker.types.TrainingRun.model_validate(described)
        assert (run.base_model, run.lora_rank, run.user_metadata) == ("base", 8, {"run": "1"})
        assert (run.last_checkpoint, run.last_sampler_checkpoint) == (checkpoints[1], checkpoints[0])
        _, listed = await looker.ask("GET", "/training_runs?limit=1")
        assert tinker.types.TrainingRunsResponse.model_validate(listed).training_runs == [run]
        _, described = await looker.ask("POST", "/weights_info", {"tinker_path": "tinker://m/weights/a"})
        info = tinker.types.WeightsInfoResponse.model_validate(described)
        assert (info.base_model, info.is_lora, info.lora_rank, info.train_mlp) == ("base", True, 8, True)


async def test_what_was_saved_can_be_removed_once(tmp_path: Path) -> None:
    async with looking(tmp_path) as looker:
        path = "/training_runs/m/checkpoints/weights/a"
        assert await looker.ask("DELETE", path) == (200, {})
        assert await looker.ask("DELETE", path) == (404, {"detail": "there is no checkpoint tinker://m/weights/a"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/training_runs/nobody", 404),
        ("GET", "/training_runs?limit=x", 400),
        ("GET", "/checkpoints?offset=-1", 400),
        ("GET", "/training_runs/.hidden/checkpoints", 400),
        ("DELETE", "/training_runs/m/checkpoints/other/a", 404),
        ("DELETE", "/training_runs/m/checkpoints/weights%2F..%2F..%2Fm", 404),
        ("DELETE", "/training_runs/..%2Fm/checkpoints/weights/a", 404),
    ],
)
async def test_what_is_not_there_is_refused(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with looking(tmp_path) as looker:
        assert (await looker.ask(method, path))[0] == status
        assert len((await looker.ask("GET", "/checkpoints"))[1]["checkpoints"]) == 2


async def test_a_path_of_nothing_has_no_info(tmp_path: Path) -> None:
    async with looking(tmp_path) as looker:
        for path in ("tinker://x/weights/a", "a", "tinker://m/weights/../../m"):
            assert (await looker.ask("POST", "/weights_info", {"tinker_path": path}))[0] == 404

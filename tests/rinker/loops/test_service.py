"""The model of a run: it is there while the run is, whatever becomes of either."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.loops.config import LoopConfig
from reward_loop.rinker.loops.service import open_service, training_client
from reward_loop.rinker.types import LoraConfig, ModelSpec
from tests.rinker.recording_backend import RecordingBackend
from tests.rinker.rl.copy_task import write_model


class Gone(RecordingBackend):
    async def unload_model(self, model_id: str) -> None:
        raise RequestFailedError("the server is gone", category="server")


class Stuck(RecordingBackend):
    async def unload_model(self, model_id: str) -> None:
        await asyncio.Event().wait()


def config(path: Path) -> LoopConfig:
    return LoopConfig.model_validate({"log_path": path, "model": {"base_model": "base"}})


@pytest.mark.parametrize(
    ("model", "spec"),
    [
        ({}, ModelSpec("base", seed=0)),
        ({"lora": {"rank": 4}}, ModelSpec("base", lora=LoraConfig(4, 0), seed=0)),
        (
            {"lora": {"alpha": 8.0, "train_mlp": False}},
            ModelSpec("base", lora=LoraConfig(32, 0, alpha=8.0, train_mlp=False), seed=0),
        ),
    ],
)
async def test_the_model_that_is_asked_for_is_the_configured_one(tmp_path: Path, model: Any, spec: ModelSpec) -> None:
    backend = RecordingBackend()
    configured = LoopConfig.model_validate({"log_path": tmp_path, "model": {"base_model": "base", **model}})
    with ServiceClient(backend=backend) as service:
        async with training_client(service, configured, "causal_lm", None):
            assert backend.asked("create_model") == [("create_model", spec, None)]


@pytest.mark.parametrize(("engine", "noted"), [(None, "role_colon"), ("llama3", "llama3")])
def test_a_checkpoint_names_the_runs_renderer_unless_the_engine_names_one(tmp_path: Path, engine: str | None, noted: str) -> None:
    base_model = write_model(tmp_path / "model")
    model, settings = {"base_model": base_model}, {"engine": {"renderer": engine, "device": "cpu"}}
    renders = LoopConfig.model_validate({"log_path": tmp_path, "model": model, "service": settings, "renderer": "role_colon"})
    with open_service(renders) as service:
        service.create_training_client(base_model).result().save_state("one").result()
    [manifest] = tmp_path.glob("weights/*/weights/one/checkpoint.json")
    assert json.loads(manifest.read_text())["renderer"] == noted


async def test_a_model_is_unloaded_with_the_run(tmp_path: Path) -> None:
    backend = RecordingBackend()
    with ServiceClient(backend=backend) as service:
        async with training_client(service, config(tmp_path), "causal_lm", None) as client:
            assert not backend.asked("unload_model")
        assert backend.asked("unload_model") == [("unload_model", client.model_id)]
        with pytest.raises(ZeroDivisionError):
            async with training_client(service, config(tmp_path), "causal_lm", None):
                raise ZeroDivisionError
        assert len(backend.asked("unload_model")) == 2


@pytest.mark.parametrize("backend", [Gone, Stuck])
async def test_a_server_that_is_gone_hides_no_error(
    tmp_path: Path, backend: type[RecordingBackend], caplog: pytest.LogCaptureFixture
) -> None:
    with ServiceClient(backend=backend()) as service, caplog.at_level(logging.WARNING):
        with pytest.raises(ZeroDivisionError):
            async with training_client(service, config(tmp_path), "causal_lm", None, unload_timeout_s=0.01):
                raise ZeroDivisionError
        async with training_client(service, config(tmp_path), "causal_lm", None, unload_timeout_s=0.01):
            pass  # what is over stays so
    why = "the server is gone" if backend is Gone else "it took more than 0.01 s"
    assert caplog.messages == [f"model=model-{number} is not unloaded: {why}" for number in (0, 1)]


async def test_a_service_that_was_closed_by_the_run_hides_no_error(tmp_path: Path) -> None:
    service = ServiceClient(backend=RecordingBackend())

    async def run() -> None:
        async with training_client(service, config(tmp_path), "causal_lm", None):
            await service.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run()

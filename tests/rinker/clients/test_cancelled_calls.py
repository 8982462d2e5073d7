"""A call that is cancelled does not hold up those behind it, wherever it had got to."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.clients.chunks import ChunkLimits
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.remote.http_backend import HttpBackend
from reward_loop.rinker.types import AdamParams, Datum, ModelInput, ModelSpec, TensorData
from tests.rinker.recording_backend import RecordingBackend
from tests.rinker.served import served
from tests.rinker.service.scripted_service import scripted_service

PATIENCE_S = 20
"""Far less than the time for which a service waits for a number that is missing."""
DATA = [Datum(ModelInput.from_ints([1])), Datum(ModelInput.from_ints([2]))]


@pytest.fixture(params=["in this process", "over HTTP"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrainingClient]:
    with contextlib.ExitStack() as stack:
        chunks = ChunkLimits(max_data=1)
        if request.param == "over HTTP":
            url = stack.enter_context(served(lambda: scripted_service(tmp_path)))
            service = stack.enter_context(ServiceClient(base_url=url, chunks=chunks))
        else:
            service = stack.enter_context(ServiceClient(backend=scripted_service(tmp_path), chunks=chunks))
        yield service.create_training_client("base").result()


def steps_after(client: TrainingClient) -> float:
    stepped = client.optim_step(AdamParams()).result(timeout=PATIENCE_S)
    assert stepped.metrics is not None
    return stepped.metrics["step:max"]


def test_one_that_had_not_begun_leaves_its_numbers_to_nobody(client: TrainingClient) -> None:
    client.forward_backward(DATA, "cross_entropy").future().cancel()
    client.optim_step(AdamParams()).future().cancel()
    assert steps_after(client) >= 1


def test_one_that_waited_for_a_custom_loss_leaves_its_number_to_nobody() -> None:
    backend, computed = RecordingBackend(), threading.Event()
    scored = [Datum(ModelInput.from_ints([1]), {"target_tokens": TensorData([2], "int64")})]

    def slow(_: list[Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        assert computed.wait(PATIENCE_S)
        return -torch.cat(logprobs).sum(), {}

    with ServiceClient(backend=backend) as service:
        client = service.create_training_client("base").result()
        custom, behind = client.forward_backward_custom(scored, slow), client.optim_step(AdamParams())
        behind.future().cancel()
        computed.set()
        custom.result()
        client.save_state("a").result()
    sent = backend.numbered()
    assert sent[3] == ("forward_backward", [], "cross_entropy", None, True)
    assert sent[4][0] == "save_state"


async def test_one_that_is_cancelled_at_the_wire_leaves_its_number_to_nobody(tmp_path: Path) -> None:
    with served(lambda: scripted_service(tmp_path)) as url:
        backend = HttpBackend(url)
        model = await backend.create_model(ModelSpec("base"))
        for number in range(1, 10):
            sending = asyncio.create_task(backend.optim_step(model, number, AdamParams()))
            for _ in range(number):
                await asyncio.sleep(0)
            sending.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await backend.forward_backward(model, 10, DATA, "cross_entropy")
        await backend.close()

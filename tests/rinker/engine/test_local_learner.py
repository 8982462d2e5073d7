"""The learner of this process: a Learner, whose event loop goes on while its thread works."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.local_learner import LocalLearner
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.learner import Learner
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec
from tests.rinker.engine.models import datum, supervised, write_language_model

CPU = EngineSettings(device="cpu")


async def test_it_trains_saves_and_goes_on(language_model: str, tmp_path: Path) -> None:
    spec = ModelSpec(language_model, lora=LoraConfig(rank=4))
    learner: Learner = await LocalLearner.create(spec, CPU)
    assert learner.spec == spec
    first = await learner.forward_backward([datum([2, 3, 4])], "cross_entropy")
    stepped = await learner.optim_step(AdamParams(1e-2))
    assert stepped.metrics is not None
    assert stepped.metrics["step"] == 1.0
    await learner.save(tmp_path / "checkpoint", optimizer=True)
    await learner.forward_backward([datum([2, 3, 4])], "cross_entropy")
    await learner.optim_step(AdamParams(1e-2))
    await learner.load(tmp_path / "checkpoint", optimizer=True)
    again = await learner.forward_backward([datum([2, 3, 4])], "cross_entropy", forward_only=True)
    assert again.metrics["loss:sum"] < first.metrics["loss:sum"]
    assert "lm_head.weight" in await learner.weights()
    await learner.close()


async def test_refusals_come_through(language_model: str) -> None:
    learner = LocalLearner(ModelSpec(language_model), CPU)
    with pytest.raises(RequestFailedError, match="unknown loss_fn"):
        await learner.forward_backward([datum([2, 3])], "nothing", {})
    await learner.close()


async def test_a_model_that_is_not_there_can_not_be_trained(tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match="can't be loaded as causal_lm") as caught:
        await LocalLearner.create(ModelSpec(str(tmp_path)), CPU)
    assert caught.value.category == "user"


async def test_models_may_be_loaded_at_the_same_time(tmp_path: Path) -> None:
    """transformers' loads must not overlap: they would leave the tying of weights switched off for good."""
    path = str(write_language_model(tmp_path, tie_word_embeddings=True))
    learners = list[asyncio.Task[LocalLearner]]()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(6):
            learners.append(tasks.create_task(LocalLearner.create(ModelSpec(path, lora=LoraConfig(rank=4)), CPU)))
    for learner in learners:
        weights = await learner.result().weights()
        assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
        await learner.result().close()


async def test_a_closed_learner_says_so(language_model: str) -> None:
    learner = LocalLearner(ModelSpec(language_model), CPU)
    await learner.close()
    await learner.close()
    with pytest.raises(RequestFailedError, match="the model is closed") as caught:
        await learner.weights()
    assert caught.value.category == "user"


async def test_the_event_loop_goes_on_meanwhile_and_calls_keep_their_order(language_model: str) -> None:
    learner = LocalLearner(ModelSpec(language_model), CPU)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(tick())
        backward = tasks.create_task(learner.forward_backward(supervised(32), "cross_entropy"))
        step = tasks.create_task(learner.optim_step(AdamParams()))
        await step
        assert backward.done()
        ticking.cancel()
    assert ticks > 10
    await learner.close()


async def test_a_cancelled_call_ends_before_the_next_begins(language_model: str) -> None:
    learner = LocalLearner(ModelSpec(language_model), CPU)
    call = asyncio.ensure_future(learner.forward_backward(supervised(16), "cross_entropy"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await learner.optim_step(AdamParams())).metrics is not None  # it had its gradients
    await learner.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("learner")]


async def test_gradients_are_switched_off_in_the_thread_and_not_here(language_model: str) -> None:
    learner = LocalLearner(ModelSpec(language_model), CPU)
    await learner.forward_backward([datum([2, 3])], "cross_entropy", forward_only=True)
    assert torch.is_grad_enabled()
    await learner.close()

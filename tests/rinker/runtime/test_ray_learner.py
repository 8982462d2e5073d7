"""A learner in Ray actors: what a learner in this process does, also when its processes are killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from reward_loop.errors import RequestFailedError
from reward_loop.loop_thread import LoopThread
from reward_loop.rinker.engine.local_learner import LocalLearner
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.learner import Learner, Weights
from reward_loop.rinker.runtime.settings import LearnerSettings, RecoverySettings
from reward_loop.rinker.types import AdamParams, ModelSpec
from tests.processes import wait_until_gone
from tests.rinker.engine.models import datum, sampled, supervised, write_language_model

pytest.importorskip("ray", reason="Ray is not installed: pip install 'reward-loop[ray]'")

from reward_loop.rinker.runtime.ray_learner import RayLearner

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

ADAM = AdamParams(learning_rate=1e-2)
SMALL = EngineSettings(micro_batch_tokens=24)


def pids(learner: RayLearner) -> list[int]:
    import ray

    found: list[int] = ray.get([actor.pid.remote() for actor in learner.actors])
    return found


def same(one: Weights, other: Weights, tolerance: float = 0.0) -> bool:
    return one.keys() == other.keys() and all(
        torch.allclose(value, other[name], rtol=0, atol=tolerance) for name, value in one.items()
    )


async def trained(learner: Learner, steps: int, *, first: int = 0) -> list[Mapping[str, float]]:
    metrics: list[Mapping[str, float]] = []
    for step in range(first, first + steps):
        # Gradients of two calls add up.
        metrics += [(await learner.forward_backward(sampled(5, seed=10 * step + call), "ppo")).metrics for call in range(2)]
        metrics.append((await learner.optim_step(ADAM)).metrics or {})
    return metrics


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own-checkpoints")


@pytest.fixture(scope="module")
def two_ranks(ray_cluster: None, loop: LoopThread, language_model: str, own: Path) -> Iterator[RayLearner]:
    """Replicas that recover, and reserve no CPU: other tests' actors have them."""
    settings = LearnerSettings(ranks=2, cpus=0, recover=RecoverySettings(directory=str(own), every_steps=2))
    learner = loop.run(RayLearner.create(ModelSpec(language_model), SMALL, settings))
    yield learner
    loop.run(learner.close())
    assert not list(own.iterdir())


# -- as in one process ------------------------------------------------------------------------------------------------


def test_two_ranks_train_as_one_process_does_from_checkpoints_of_either(
    two_ranks: RayLearner, loop: LoopThread, language_model: str, tmp_path: Path
) -> None:
    async def compared() -> None:
        alone = LocalLearner(ModelSpec(language_model), SMALL)
        await alone.save(tmp_path / "begin", optimizer=True)
        await two_ranks.load(tmp_path / "begin", optimizer=True)
        ours, theirs = await trained(two_ranks, 2), await trained(alone, 2)
        assert all(mine == pytest.approx(its, abs=1e-5) for mine, its in zip(ours, theirs, strict=True))
        assert same(await two_ranks.weights(), await alone.weights(), 1e-5)
        await two_ranks.save(tmp_path / "saved", optimizer=True)
        await alone.load(tmp_path / "saved", optimizer=True)
        await trained(two_ranks, 1, first=2)
        await trained(alone, 1, first=2)
        assert same(await two_ranks.weights(), await alone.weights(), 1e-5)
        await alone.close()

    loop.run(compared())


def test_what_is_refused_is_the_callers_error_and_changes_nothing(two_ranks: RayLearner, loop: LoopThread) -> None:
    async def refused() -> None:
        before = await two_ranks.weights()
        with pytest.raises(RequestFailedError, match="token 99") as caught:
            await two_ranks.forward_backward([*supervised(2), datum([1, 99, 2], weights=[1.0, 1.0])], "cross_entropy")
        assert caught.value.category == "user"
        with pytest.raises(RequestFailedError, match="no gradients to step with"):
            await two_ranks.optim_step(ADAM)
        with pytest.raises(RequestFailedError, match="no-checkpoint"):
            await two_ranks.load(Path("no-checkpoint"), optimizer=True)
        assert same(await two_ranks.weights(), before)

    loop.run(refused())


def test_a_checkpoint_that_rank_0_can_t_write_is_an_error_and_the_ranks_go_on(
    two_ranks: RayLearner, loop: LoopThread, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no directory")

    async def saved() -> None:
        with pytest.raises(RequestFailedError, match="can't be written"):
            await two_ranks.save(tmp_path / "file" / "checkpoint", optimizer=True)
        assert await two_ranks.weights()

    loop.run(saved())


def test_calls_run_in_the_order_in_which_they_were_made_and_one_that_is_left_goes_on(
    two_ranks: RayLearner, loop: LoopThread, language_model: str
) -> None:
    async def ordered() -> list[float]:
        left = asyncio.ensure_future(two_ranks.forward_backward(sampled(3), "ppo"))
        await asyncio.sleep(0)
        left.cancel()
        async with asyncio.TaskGroup() as calls:
            steps = [calls.create_task(two_ranks.optim_step(ADAM))]
            calls.create_task(two_ranks.forward_backward(sampled(3), "ppo"))
            steps.append(calls.create_task(two_ranks.optim_step(ADAM)))
        return [(step.result().metrics or {})["step"] for step in steps]

    first, second = loop.run(ordered())
    assert second == first + 1


# -- processes that die -----------------------------------------------------------------------------------------------


def test_ranks_that_are_killed_come_back_to_where_undisturbed_ones_are(
    two_ranks: RayLearner, loop: LoopThread, tmp_path: Path
) -> None:
    async def run(*, disturbed: bool) -> tuple[list[Mapping[str, float]], Weights]:
        await two_ranks.load(tmp_path / "begin", optimizer=True)
        metrics = await trained(two_ranks, 3)  # of which the learner's own checkpoint has two
        await two_ranks.forward_backward(sampled(5, seed=30), "ppo")
        if disturbed:
            os.kill(pids(two_ranks)[1], signal.SIGKILL)
        metrics.append((await two_ranks.forward_backward(sampled(5, seed=31), "ppo")).metrics)
        metrics.append((await two_ranks.optim_step(ADAM)).metrics or {})
        return metrics, await two_ranks.weights()

    loop.run(two_ranks.save(tmp_path / "begin", optimizer=True))
    before = pids(two_ranks)
    expected, weights = loop.run(run(disturbed=False))
    metrics, ours = loop.run(run(disturbed=True))
    assert metrics == expected
    assert same(ours, weights)
    wait_until_gone(before)


def test_gradients_that_a_refused_step_dropped_stay_so_when_ranks_come_back(
    two_ranks: RayLearner, loop: LoopThread, tmp_path: Path
) -> None:
    async def run(*, disturbed: bool) -> Weights:
        await two_ranks.load(tmp_path / "begin", optimizer=True)
        await two_ranks.forward_backward([datum([1, 2, 3], weights=[1e25, 1e25])], "cross_entropy")
        with pytest.raises(RequestFailedError, match="the norm of all gradients"):
            await two_ranks.optim_step(ADAM)
        await two_ranks.forward_backward(sampled(5), "ppo")
        with pytest.raises(RequestFailedError, match="learning_rate=-1"):
            await two_ranks.optim_step(AdamParams(learning_rate=-1))  # refused too, and drops nothing
        if disturbed:
            os.kill(pids(two_ranks)[1], signal.SIGKILL)
        await trained(two_ranks, 1)
        return await two_ranks.weights()

    loop.run(two_ranks.save(tmp_path / "begin", optimizer=True))
    assert same(loop.run(run(disturbed=False)), loop.run(run(disturbed=True)))


def test_a_learner_whose_ranks_do_not_come_back_is_lost(ray_cluster: None, loop: LoopThread, own: Path, tmp_path: Path) -> None:
    model = write_language_model(tmp_path / "model")
    settings = LearnerSettings(cpus=0, recover=RecoverySettings(directory=str(own)))
    learner = loop.run(RayLearner.create(ModelSpec(str(model)), SMALL, settings))
    loop.run(trained(learner, 1))
    shutil.rmtree(model)
    os.kill(pids(learner)[0], signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(RequestFailedError, match=r"processes are gone: .*can't be loaded") as caught:
            loop.run(trained(learner, 1))
        assert caught.value.category == "server"
    assert learner.actors == []
    loop.run(learner.close())


def test_a_learner_that_does_not_recover_says_what_happened(ray_cluster: None, loop: LoopThread, language_model: str) -> None:
    learner = loop.run(RayLearner.create(ModelSpec(language_model), SMALL, LearnerSettings(cpus=0.5, placement="STRICT_PACK")))
    assert same(loop.run(learner.weights()), loop.run(learner.weights()))
    (pid,) = pids(learner)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RequestFailedError, match="create the model again, from a checkpoint") as caught:
        loop.run(trained(learner, 1))
    assert caught.value.category == "server"
    wait_until_gone([pid])
    with pytest.raises(RequestFailedError, match="processes are gone"):
        loop.run(learner.weights())
    loop.run(learner.close())


# -- places -----------------------------------------------------------------------------------------------------------


def test_places_that_the_cluster_does_not_have_are_an_error(ray_cluster: None, loop: LoopThread, language_model: str) -> None:
    settings = LearnerSettings(gpus=64, start_timeout_s=0.5)
    with pytest.raises(RequestFailedError, match=r"1 places of .*'GPU': 64.*; the cluster has") as caught:
        loop.run(RayLearner.create(ModelSpec(language_model), SMALL, settings))
    assert caught.value.category == "server"


@pytest.mark.gpu
def test_on_a_gpu_an_actor_has_the_one_that_it_was_given_and_trains_as_on_the_cpu(loop: LoopThread, language_model: str) -> None:
    learner = loop.run(RayLearner.create(ModelSpec(language_model), SMALL, LearnerSettings(cpus=0, gpus=1)))

    async def compared() -> None:
        alone = LocalLearner(ModelSpec(language_model), SMALL.model_copy(update={"device": "cpu"}))
        ours, theirs = await trained(learner, 2), await trained(alone, 2)
        assert all(mine == pytest.approx(its, rel=1e-3, abs=1e-3) for mine, its in zip(ours, theirs, strict=True))
        await alone.close()

    loop.run(compared())
    loop.run(learner.close())

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import DataError, RequestFailedError
from reward_loop.rinker.backend import Backend
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.service.checkpoint_path import CheckpointPath
from reward_loop.rinker.service.checkpoint_store import CheckpointStore
from reward_loop.rinker.service.settings import ServiceSettings
from reward_loop.rinker.service.training_service import TrainingService
from reward_loop.rinker.types import (
    AdamParams,
    Datum,
    LoraConfig,
    ModelInput,
    ModelSpec,
    SampledSequence,
    SampleResponse,
    SamplingParams,
)
from tests.rinker.conformance.tiny_policy import CONTEXT, tiny_policy
from tests.rinker.service.scripted_learner import ScriptedLearner

DATA = [Datum(ModelInput.from_ints([1]))]
CALL = SampleCall(ModelInput.from_ints([1]), 1, SamplingParams())


class Echo:
    """A sampler that answers with what it was asked to sample from: its id, and how many steps its weights have seen."""

    def __init__(self) -> None:
        self.asked: list[Snapshot] = []
        self.closed = False

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        self.asked.append(snapshot)
        weights = snapshot.weights
        steps = int(weights["steps"]) if isinstance(weights, dict) else -1
        return SampleResponse([SampledSequence("stop", [steps])])

    async def close(self) -> None:
        self.closed = True


class Bench:
    """A service with learners that do as they are told."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.learners: list[ScriptedLearner] = []
        self.sampler = Echo()
        self.store = CheckpointStore(directory)
        self.service = TrainingService(self.learner, self.sampler, self.store, ServiceSettings(**settings))

    async def learner(self, spec: ModelSpec) -> ScriptedLearner:
        self.learners.append(ScriptedLearner(spec))
        return self.learners[-1]

    async def steps_seen(self, session: str) -> int:
        return (await self.service.sample(session, CALL)).sequences[0].tokens[0]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "checkpoints", gap_timeout_s=5)
    yield bench
    await bench.service.close()


def test_it_is_a_backend(tmp_path: Path) -> None:
    backend: Backend = Bench(tmp_path).service
    assert backend


async def test_operations_of_one_model_run_by_their_numbers_and_those_of_others_meanwhile(bench: Bench) -> None:
    one, other = [await bench.service.create_model(ModelSpec("base")) for _ in range(2)]
    bench.learners[0].gate.clear()
    async with asyncio.TaskGroup() as group:
        second = group.create_task(bench.service.forward_backward(one, 2, DATA, "second"))
        first = group.create_task(bench.service.forward_backward(one, 1, DATA, "first"))
        await bench.service.optim_step(other, 1, AdamParams())
        assert not first.done()
        assert not second.done()
        bench.learners[0].gate.set()
    assert bench.learners[0].passes == ["first", "second"]
    assert bench.learners[1].steps == 1


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (RequestFailedError("as it is", category="user"), "user"),
        (DataError("a bad datum"), "user"),
        (RuntimeError("out of memory"), "server"),
    ],
)
async def test_an_operation_that_fails_fails_alone(bench: Bench, error: Exception, category: str) -> None:
    model = await bench.service.create_model(ModelSpec("base"))
    bench.learners[0].errors.append(error)
    with pytest.raises(RequestFailedError, match=str(error)) as failed:
        await bench.service.forward_backward(model, 1, DATA, "first")
    assert failed.value.category == category
    await bench.service.forward_backward(model, 2, DATA, "second")
    assert bench.learners[0].passes == ["second"]


async def test_a_name_that_is_wrong_takes_up_its_number_all_the_same(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base"))
    with pytest.raises(RequestFailedError, match=r"checkpoint name '../up'"):
        await bench.service.save_state(model, 1, "../up")
    with pytest.raises(RequestFailedError, match="there is no checkpoint"):
        await bench.service.load_state(model, 2, "tinker://m/weights/a", optimizer=True)
    await bench.service.optim_step(model, 3, AdamParams())


async def test_a_model_that_is_not_there_is_the_users_error(bench: Bench) -> None:
    with pytest.raises(RequestFailedError, match="there is no model nobody") as failed:
        await bench.service.optim_step("nobody", 1, AdamParams())
    assert failed.value.category == "user"


async def test_models_are_limited_and_unloading_makes_room(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_models=1)
    model = await bench.service.create_model(ModelSpec("base"))
    with pytest.raises(RequestFailedError, match="1 models are in training, which is the limit; unload one"):
        await bench.service.create_model(ModelSpec("base"))
    await bench.service.unload_model(model)
    assert bench.learners[0].closed
    with pytest.raises(RequestFailedError, match=f"there is no model {model}"):
        await bench.service.get_info(model)
    await bench.service.create_model(ModelSpec("base"))
    await bench.service.close()


async def test_only_base_models_that_are_offered_are_trained_and_sampled(tmp_path: Path, policy: str) -> None:
    bench = Bench(tmp_path, base_models=(policy,))
    offered = (await bench.service.capabilities()).supported_models
    assert [(model.model_name, model.max_context_length) for model in offered] == [(policy, CONTEXT)]
    with pytest.raises(RequestFailedError, match="base model 'other' is not offered"):
        await bench.service.create_model(ModelSpec("other"))
    with pytest.raises(RequestFailedError, match="base model 'other' is not offered"):
        await bench.service.create_sampling_session(base_model="other")
    await bench.service.close()


async def test_a_model_may_be_given_its_id_once(bench: Bench) -> None:
    assert await bench.service.create_model(ModelSpec("base"), model_id="session:train:0") == "session:train:0"
    with pytest.raises(RequestFailedError, match="there is a model session:train:0 already"):
        await bench.service.create_model(ModelSpec("base"), model_id="session:train:0")
    with pytest.raises(RequestFailedError, match=r"model id '../x'"):
        await bench.service.create_model(ModelSpec("base"), model_id="../x")


async def test_info_describes_a_model(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base", lora=LoraConfig(rank=8)))
    info = await bench.service.get_info(model)
    assert (info.model_id, info.model_data.model_name, info.is_lora, info.lora_rank) == (model, "base", True, 8)


async def test_a_learner_that_cant_be_made_is_an_error_and_takes_no_room(tmp_path: Path) -> None:
    def broken(_: ModelSpec) -> ScriptedLearner:
        raise MemoryError("no room")

    service = TrainingService(broken, Echo(), CheckpointStore(tmp_path), ServiceSettings(max_models=1))
    for _ in range(2):
        with pytest.raises(RequestFailedError, match=r"creating a model on base failed: .*no room") as failed:
            await service.create_model(ModelSpec("base"))
        assert failed.value.category == "server"
    await service.close()


async def test_a_model_goes_on_from_what_was_saved(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base", lora=LoraConfig(rank=4)))
    await bench.service.optim_step(model, 1, AdamParams())
    path = (await bench.service.save_state(model, 2, "one", ttl_seconds=5, user_metadata={"a": "b"})).path
    assert path == f"tinker://{model}/weights/one"
    restored = await bench.service.create_model_from_state(path, optimizer=True, base_model="elsewhere")
    assert bench.learners[1].steps == 1
    assert bench.learners[1].spec == ModelSpec("elsewhere", lora=LoraConfig(rank=4))
    await bench.service.optim_step(model, 3, AdamParams())
    await bench.service.load_state(model, 4, path, optimizer=True)
    assert bench.learners[0].steps == 1
    assert (await bench.service.get_info(restored)).model_data.model_name == "elsewhere"


async def test_a_state_that_cant_be_loaded_leaves_no_model_behind(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base"))
    path = (await bench.service.save_state(model, 1, "one")).path
    (bench.store.find(CheckpointPath.parse(path))[0] / "steps").unlink()
    with pytest.raises(RequestFailedError, match="creating a model on base failed"):
        await bench.service.create_model_from_state(path, optimizer=True)
    assert bench.learners[1].closed
    assert [one.id for one in bench.service.models()] == [model]


async def test_a_name_that_is_taken_is_refused(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base"))
    await bench.service.save_state(model, 1, "one")
    with pytest.raises(RequestFailedError, match="exists"):
        await bench.service.save_state(model, 2, "one")
    await bench.service.save_state(model, 3, "one", overwrite=True)


async def test_a_snapshot_stays_and_inflight_sessions_follow(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base"))
    saves = [
        await bench.service.save_weights_for_sampler(model, 1, None),
        await bench.service.save_weights_for_sampler(model, 2, None, "inflight"),
    ]
    await bench.service.optim_step(model, 3, AdamParams())
    saves.append(await bench.service.save_weights_for_sampler(model, 4, None, "snapshot"))
    assert [await bench.steps_seen(str(saved.sampling_session_id)) for saved in saves] == [0, 0, 1]
    saves.append(await bench.service.save_weights_for_sampler(model, 5, None, "inflight"))
    assert [await bench.steps_seen(str(saved.sampling_session_id)) for saved in saves] == [0, 1, 1, 1]
    assert {await bench.service.sampling_session_model(str(saved.sampling_session_id)) for saved in saves} == {"base"}


async def test_weights_that_did_not_change_are_taken_once(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base"))
    for seq_id in (1, 2):
        saved = await bench.service.save_weights_for_sampler(model, seq_id, None)
        await bench.steps_seen(str(saved.sampling_session_id))
    await bench.service.optim_step(model, 3, AdamParams())
    state = (await bench.service.save_state(model, 4, "one")).path
    await bench.service.load_state(model, 5, state, optimizer=True)  # as many steps behind it, and yet another snapshot
    saved = await bench.service.save_weights_for_sampler(model, 6, None)
    await bench.steps_seen(str(saved.sampling_session_id))
    first, second, third = bench.sampler.asked
    assert first is second
    assert (third.version, first.version) == (1, 0)
    assert third.id != first.id


@pytest.mark.parametrize(("what", "steps"), [("optim_step", 3), ("load_state", 1)])
async def test_what_was_cancelled_under_way_is_not_sampled_from_as_it_was_before(bench: Bench, what: str, steps: int) -> None:
    model = await bench.service.create_model(ModelSpec("base"))
    await bench.service.optim_step(model, 1, AdamParams())
    state = (await bench.service.save_state(model, 2, "one")).path
    await bench.service.optim_step(model, 3, AdamParams())
    await bench.service.save_weights_for_sampler(model, 4, None)
    bench.learners[0].gate.clear()
    async with asyncio.TaskGroup() as group:
        if what == "optim_step":
            cancelled: asyncio.Task[Any] = group.create_task(bench.service.optim_step(model, 5, AdamParams()))
        else:
            cancelled = group.create_task(bench.service.load_state(model, 5, state, optimizer=True))
        await bench.learners[0].held.wait()
        cancelled.cancel()
    bench.learners[0].gate.set()
    saved = await bench.service.save_weights_for_sampler(model, 6, None)
    assert await bench.steps_seen(str(saved.sampling_session_id)) == steps
    assert bench.sampler.asked[-1].version == steps


async def test_a_step_that_failed_is_not_counted(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base"))
    bench.learners[0].errors.append(RequestFailedError("call forward_backward first", category="user"))
    with pytest.raises(RequestFailedError, match="call forward_backward first"):
        await bench.service.optim_step(model, 1, AdamParams())
    saved = await bench.service.save_weights_for_sampler(model, 2, None)
    await bench.steps_seen(str(saved.sampling_session_id))
    assert bench.sampler.asked[-1].version == 0


async def test_what_may_be_sampled_from_is_said(bench: Bench, policy: str) -> None:
    session = await bench.service.create_sampling_session(base_model=policy)
    await bench.service.sample(session, CALL)
    assert bench.sampler.asked[-1].weights is None
    model = await bench.service.create_model(ModelSpec("base"))
    state = (await bench.service.save_state(model, 1, "one")).path
    assert await bench.steps_seen(await bench.service.create_sampling_session(model_path=state)) == 0
    assert bench.learners[-1].closed  # it was made for its weights only
    await bench.service.close_sampling_session(session)
    for wrong, message in (
        ({}, "give model_path or base_model"),
        ({"model_path": "nowhere"}, "no path of a checkpoint"),
        ({"model_path": "tinker://m/sampler_weights/a"}, "there is no checkpoint"),
        ({"base_model": "nowhere/at/all"}, "can't be read"),
    ):
        with pytest.raises(RequestFailedError, match=message) as failed:
            await bench.service.create_sampling_session(**wrong)
        assert failed.value.category == "user"
    with pytest.raises(RequestFailedError, match=f"there is no sampling session {session}"):
        await bench.service.sample(session, CALL)


async def test_a_reward_model_is_not_sampled_from(bench: Bench) -> None:
    model = await bench.service.create_model(ModelSpec("base", kind="seq_cls"))
    with pytest.raises(RequestFailedError, match="a model of the kind seq_cls writes no text"):
        await bench.service.save_weights_for_sampler(model, 1, None)
    state = (await bench.service.save_state(model, 2, "one")).path
    with pytest.raises(RequestFailedError, match="a model of the kind seq_cls writes no text"):
        await bench.service.create_sampling_session(model_path=state)


async def test_sampler_weights_cant_be_trained_on(bench: Bench, policy: str) -> None:
    model = await bench.service.create_model(ModelSpec(policy))
    path = (await bench.service.save_weights_for_sampler(model, 1, "one")).path
    assert path == f"tinker://{model}/sampler_weights/one"
    with pytest.raises(RequestFailedError, match="can only be sampled from"):
        await bench.service.create_model_from_state(str(path), optimizer=False)
    with pytest.raises(RequestFailedError, match="exists"):
        await bench.service.save_weights_for_sampler(model, 2, "one")


async def test_closing_frees_what_it_holds_and_refuses_what_comes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    model = await bench.service.create_model(ModelSpec("base"))
    await bench.service.close()
    await bench.service.close()
    assert bench.learners[0].closed
    assert bench.sampler.closed
    with pytest.raises(RequestFailedError, match="the service is closed"):
        await bench.service.optim_step(model, 1, AdamParams())
    with pytest.raises(RequestFailedError, match="the service is closed"):
        await bench.service.create_model(ModelSpec("base"))


async def test_closing_frees_all_whatever_fails_and_says_what_failed_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(3):
        await bench.service.create_model(ModelSpec("base"))
        if number < 2:
            bench.learners[number].errors.append(RuntimeError(f"rank {number} hangs"))
    with pytest.raises(RequestFailedError, match="rank 0 hangs"):
        await bench.service.close()
    assert [learner.closed for learner in bench.learners] == [True, True, True]
    assert bench.sampler.closed
    await bench.service.close()


async def test_closing_that_is_cancelled_frees_all_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for _ in range(2):
        await bench.service.create_model(ModelSpec("base"))
    bench.learners[0].gate.clear()
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(bench.service.close())
        await bench.learners[0].held.wait()
        closing.cancel()
    assert closing.cancelled()
    assert bench.learners[1].closed
    assert bench.sampler.closed

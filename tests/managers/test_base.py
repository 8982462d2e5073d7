"""The pipeline that every manager shares: equal inputs, private copies, one result."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reward_loop.config import RewardLoopConfig
from reward_loop.data import DataProto
from reward_loop.data.sample import Sample
from reward_loop.errors import ConfigError, DataError, InvalidReward, Unscorable
from reward_loop.managers import ManagerKwargs, RewardManagerBase, get_reward_manager_cls
from reward_loop.outcome import Reward
from tests.fakes import config_of, text_batch, tiny_tokenizer, token_batch

CONFIG = config_of(
    reward_model={"reward_kwargs": {}},
    algorithm={"gdpo_reward_keys": ["accuracy"]},
    trainer={"experiment_name": "first"},
)


def spy(
    data_source: object, solution_str: str, ground_truth: object, extra_info: dict[str, Any], raw_prompt: Any, response_ids: Any
) -> dict[str, Any]:
    """Tell what came in, after writing into all of it."""
    inputs = dict(locals())
    seen = copy.deepcopy(inputs)
    extra_info["mine"] = 1
    extra_info["nested"].append(2)
    raw_prompt.append({"role": "assistant", "content": solution_str})
    return {"score": 1.0, "accuracy": 1.0, "seen": seen}


async def async_spy(
    data_source: object, solution_str: str, ground_truth: object, extra_info: dict[str, Any], raw_prompt: Any, response_ids: Any
) -> dict[str, Any]:
    return spy(data_source, solution_str, ground_truth, extra_info, raw_prompt, response_ids)


def rollout() -> DataProto:
    return token_batch(
        ["It is 42."],
        width=30,
        extra_info=[{"nested": [1]}],
        raw_prompt=[[{"role": "user", "content": "What is 6*7?"}]],
        tool_extra_fields=[{"calls": 2}],
        __num_turns__=np.array([3]),
        reward_scores=[{"tool": 0.5}],
    )


Build = Callable[..., RewardManagerBase]


@pytest.fixture
def build() -> Iterator[Build]:
    """Builds managers and closes them."""
    managers: list[RewardManagerBase] = []

    def built(
        name: str | type, function: Callable[..., Any], config: RewardLoopConfig = CONFIG, **more: Any
    ) -> RewardManagerBase:
        manager_class: Any = name if isinstance(name, type) else get_reward_manager_cls(name)
        managers.append(manager_class(config, tiny_tokenizer(), function, **more))
        managers[-1].check()
        return managers[-1]

    yield built
    for manager in managers:
        manager.close()


# -- equal inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function"),
    [("naive", spy), ("naive", async_spy), ("dapo", spy), ("dapo", async_spy), ("gdpo", spy), ("gdpo", async_spy)],
)
async def test_every_manager_gives_the_function_the_same_and_leaves_the_batch_alone(
    build: Build, name: str, function: Callable[..., Any]
) -> None:
    data = rollout()
    before = copy.deepcopy(dict(data.non_tensor_batch))
    manager = build(name, function)
    for _ in range(2):  # what the first call wrote must not reach the second
        seen = (await manager.run_single(data))["reward_extra_info"]["seen"]
        experiment = seen["extra_info"].pop("experiment_name", None)
        assert experiment == ("first" if name == "gdpo" else None)
        assert seen == {
            "data_source": "fake",
            "solution_str": "It is 42.",
            "ground_truth": "truth 0",
            "extra_info": {"nested": [1], "calls": 2, "num_turns": 3, "rollout_reward_scores": {"tool": 0.5}},
            "raw_prompt": [{"role": "user", "content": "What is 6*7?"}],
            "response_ids": [*tiny_tokenizer()("It is 42.")["input_ids"], tiny_tokenizer().eos_token_id],
        }
    assert dict(data.non_tensor_batch) == before


async def test_the_reward_model_is_offered_where_there_is_one(build: Build) -> None:
    def compute_score(solution_str: str, reward_router_address: str, reward_model_tokenizer: object) -> dict[str, object]:
        return {"score": 1.0, "address": reward_router_address, "tokenizer": reward_model_tokenizer}

    manager = build("naive", compute_score, reward_router_address="host:1", reward_model_tokenizer="theirs")
    assert (await manager.run_single(text_batch(["x"])))["reward_extra_info"] == {
        "score": 1.0,
        "address": "host:1",
        "tokenizer": "theirs",
    }


async def test_of_several_outputs_the_last_is_scored(build: Build) -> None:
    manager = build("naive", lambda solution_str: {"score": 1.0, "text": solution_str})
    result = await manager.run_single(text_batch(["first", "last"]))
    assert result["reward_extra_info"]["text"] == "last"


# -- how the function is called ----------------------------------------------------------------------------------------


async def test_a_number_is_the_reward_and_its_accuracy(build: Build) -> None:
    manager = build("naive", lambda solution_str: len(solution_str))
    assert await manager.run_single(text_batch(["four"])) == {"reward_score": 4.0, "reward_extra_info": {"acc": 4.0}}


async def test_a_list_is_one_reward_per_token(build: Build) -> None:
    manager = build("naive", lambda response_ids: [0.5] * len(response_ids))
    data = token_batch(["x"], width=9)
    assert (await manager.run_single(data))["reward_score"] == [0.5, 0.5]


async def test_a_synchronous_function_leaves_the_event_loop_free(build: Build) -> None:
    manager = build("naive", lambda solution_str: threading.current_thread() is threading.main_thread())
    assert (await manager.run_single(text_batch(["x"])))["reward_score"] == 0.0


async def test_an_asynchronous_function_runs_on_the_event_loop(build: Build) -> None:
    async def compute_score(solution_str: str) -> float:
        return float(asyncio.get_running_loop() is here)

    here = asyncio.get_running_loop()
    manager = build("naive", compute_score)
    assert manager.is_async
    assert (await manager.run_single(text_batch(["x"])))["reward_score"] == 1.0


async def test_what_only_returns_an_awaitable_is_awaited(build: Build) -> None:
    async def later(text: str) -> float:
        return float(len(text))

    def compute_score(solution_str: str) -> Awaitable[float]:
        return later(solution_str)

    manager = build("naive", compute_score)
    assert not manager.is_async
    assert (await manager.run_single(text_batch(["four"])))["reward_score"] == 4.0


# -- what goes wrong ---------------------------------------------------------------------------------------------------


async def test_the_functions_own_exception_comes_through(build: Build) -> None:
    with pytest.raises(KeyError, match="verdict"):
        await build("naive", lambda solution_str, extra_info: extra_info["verdict"]).run_single(text_batch(["x"]))


async def test_none_is_unscorable_and_nan_no_reward(build: Build) -> None:
    with pytest.raises(Unscorable):
        await build("naive", lambda solution_str: None).run_single(text_batch(["x"]))
    with pytest.raises(InvalidReward):
        await build("naive", lambda solution_str: float("nan")).run_single(text_batch(["x"]))


async def test_a_malformed_row_is_a_data_error(build: Build) -> None:
    with pytest.raises(DataError, match="extra_info must be a dict"):
        await build("naive", lambda solution_str: 1.0).run_single(text_batch(["x"], extra_info=["text"]))


def test_a_column_that_the_function_needs_must_be_there(build: Build) -> None:
    def compute_score(solution_str: str, ground_truth: str) -> float:
        return 1.0

    manager = build("naive", compute_score)
    assert manager.required == {"solution_str", "ground_truth"}
    with pytest.raises(DataError, match="no column 'reward_model'"):
        manager.reader(text_batch(["x"], reward_model=None))


def test_settings_that_the_manager_does_not_know_are_refused(build: Build) -> None:
    config = config_of(reward_model={"reward_kwargs": {"max_resp_len": 8}})
    with pytest.raises(ConfigError, match=r"NaiveRewardManager: reward_kwargs\.max_resp_len: .* \(got 8\); it takes \[\]"):
        build("naive", lambda solution_str: 1.0, config)


def test_a_function_that_cannot_work_is_refused(build: Build) -> None:
    with pytest.raises(ConfigError, match="takes nothing of the rollout"):
        build("naive", lambda: 1.0)


# -- managers of one's own ---------------------------------------------------------------------------------------------


class VerlStyleManager(RewardManagerBase):
    """Written as verl's are: only three arguments for the base, and all of `run_single` its own."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        self.compute_score = compute_score
        self.is_async_reward_score = inspect.iscoroutinefunction(self.compute_score)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        item: Any = data[-1]
        responses = item.batch["responses"]
        length = item.batch["attention_mask"][-responses.shape[-1] :].sum()
        decode = lambda: self.tokenizer.decode(responses[:length], skip_special_tokens=True)  # noqa: E731
        text = await self.loop.run_in_executor(None, decode)
        inputs = {
            "data_source": item.non_tensor_batch["data_source"],
            "solution_str": text,
            "ground_truth": item.non_tensor_batch["reward_model"]["ground_truth"],
            "extra_info": item.non_tensor_batch.get("extra_info", {}),
        }
        if self.is_async_reward_score:
            score = await self.compute_score(**inputs)
        else:
            score = await self.loop.run_in_executor(None, lambda: self.compute_score(**inputs))
        return {"reward_score": score, "reward_extra_info": {"acc": score}}


async def test_a_manager_written_for_verl_runs_unchanged(build: Build) -> None:
    manager = build(VerlStyleManager, lambda solution_str, **_: float(len(solution_str)))
    assert await manager.run_single(token_batch(["four"], width=9)) == {"reward_score": 4.0, "reward_extra_info": {"acc": 4.0}}
    assert not manager.pipelined
    assert manager.required == frozenset()
    assert manager.config.reward_model.get("max_rpm", 60) == 60


class ShoutingManager(RewardManagerBase):
    """Overrides only hooks: one more input and a bonus."""

    offered = RewardManagerBase.offered | {"volume"}

    def inputs(self, sample: Sample) -> dict[str, Any]:
        return {**super().inputs(sample), "volume": self.kwargs["volume"]}

    def shape(self, sample: Sample, reward: Reward) -> Reward:
        return replace(reward, value=reward.value + 100)


async def test_a_manager_overrides_only_what_differs(build: Build) -> None:
    config = config_of(reward_model={"reward_kwargs": {"volume": 11}})
    manager = build(ShoutingManager, lambda solution_str, volume: volume, config)
    assert manager.pipelined
    assert (await manager.run_single(text_batch(["x"])))["reward_score"] == 111.0


class LimitedKwargs(ManagerKwargs):
    limit: float


class LimitedManager(RewardManagerBase):
    kwargs_model = LimitedKwargs


def test_a_manager_declares_its_settings(build: Build) -> None:
    function = lambda solution_str: 1.0  # noqa: E731
    assert build(LimitedManager, function, config_of(reward_model={"reward_kwargs": {"limit": 2}})).kwargs.limit == 2.0
    for wrong in ({}, {"limit": "x"}, {"limit": float("inf")}):
        with pytest.raises(ConfigError, match=r"LimitedManager: reward_kwargs\.limit: .*; it takes \['limit'\]"):
            build(LimitedManager, function, config_of(reward_model={"reward_kwargs": wrong}))

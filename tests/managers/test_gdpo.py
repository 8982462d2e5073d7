"""GDPO's components: kept apart, all there, all finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from reward_loop.errors import ConfigError, InvalidReward, Unscorable
from reward_loop.managers.gdpo import GdpoRewardManager
from tests.fakes import config_of, text_batch


def gdpo(result: Any, **algorithm: Any) -> GdpoRewardManager:
    config = config_of(algorithm={"gdpo_reward_keys": ["accuracy", "format"], **algorithm})
    return GdpoRewardManager(config, None, result if callable(result) else lambda solution_str: result)


async def scored(manager: GdpoRewardManager) -> dict[str, Any]:
    try:
        return await manager.run_single(text_batch(["x"]))
    finally:
        manager.close()


async def test_the_components_stay_in_the_extra_info() -> None:
    result = {"score": 9.0, "accuracy": 1.0, "format": 0.5, "pred": "42"}
    assert await scored(gdpo(result)) == {"reward_score": 9.0, "reward_extra_info": result}


async def test_without_a_score_the_reward_is_the_sum_of_the_components() -> None:
    result = await scored(gdpo({"accuracy": 1, "format": 0.5}))
    assert result == {"reward_score": 1.5, "reward_extra_info": {"score": 1.5, "accuracy": 1, "format": 0.5}}


async def test_the_sum_is_weighted() -> None:
    weighted = gdpo({"accuracy": 1.0, "format": 0.5}, gdpo_reward_weights=[1.0, 0.2])
    assert (await scored(weighted))["reward_score"] == pytest.approx(1.1)


@pytest.mark.parametrize("number", [True, 1, np.float32(1), torch.tensor(1.0)])
async def test_a_component_is_a_number_of_any_kind(number: object) -> None:
    assert (await scored(gdpo({"accuracy": number, "format": 0.0})))["reward_score"] == 1.0


@pytest.mark.parametrize("wrong", [None, "1.0", float("nan"), float("inf"), [1.0]])
async def test_a_component_that_is_no_finite_number_is_named(wrong: object) -> None:
    with pytest.raises(InvalidReward, match="gdpo: component 'format' must be a finite number; it is"):
        await scored(gdpo({"score": 1.0, "accuracy": 1.0, "format": wrong}))


async def test_a_missing_component_is_named() -> None:
    with pytest.raises(InvalidReward, match="component 'accuracy' must be a finite number; it is None"):
        await scored(gdpo({"score": 1.0, "format": 1.0}))


async def test_a_bare_number_has_no_components() -> None:
    with pytest.raises(InvalidReward, match=r"needs a dict with the components \['accuracy', 'format'\]; .* returned 1\.0"):
        await scored(gdpo(1.0))


@pytest.mark.parametrize("function", [lambda solution_str: None, lambda solution_str: {"score": None}])
async def test_none_is_unscorable_here_too(function: Callable[..., Any]) -> None:
    with pytest.raises(Unscorable):
        await scored(gdpo(function))


async def test_the_experiments_name_reaches_the_function() -> None:
    config = config_of(algorithm={"gdpo_reward_keys": ["accuracy"]}, trainer={"experiment_name": "first"})
    manager = GdpoRewardManager(
        config, None, lambda solution_str, extra_info: {"accuracy": 1, "name": extra_info["experiment_name"]}
    )
    assert (await scored(manager))["reward_extra_info"]["name"] == "first"


def test_without_components_it_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"gdpo needs algorithm\.gdpo_reward_keys, e\.g\."):
        gdpo(1.0, gdpo_reward_keys=None).check()

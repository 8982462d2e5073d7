"""The manager `rate_limited`."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.config_loading import load_config
from reward_loop.errors import ConfigError
from reward_loop.managers import get_reward_manager_cls
from reward_loop.managers.naive import NaiveRewardManager
from reward_loop.managers.rate_limited import RateLimitedRewardManager
from tests.fakes import config_of, text_batch


def score(solution_str: str) -> float:
    return float(len(solution_str))


def manager_of(config: Any) -> RateLimitedRewardManager:
    return RateLimitedRewardManager(config, None, score)


def test_it_has_its_name() -> None:
    assert get_reward_manager_cls("rate_limited") is RateLimitedRewardManager


def test_without_a_limit_it_refuses_to_start() -> None:
    manager = manager_of(config_of(reward_model={"rate_limit": {"estimated_tokens_per_request": 7}}))
    with pytest.raises(ConfigError, match=r"needs a limit: set reward_model\.rate_limit\.max_rpm"):
        manager.check()


@pytest.mark.parametrize("limit", ["max_rpm", "max_tpm", "max_concurrent"])
def test_one_limit_is_enough(limit: str) -> None:
    manager_of(config_of(reward_model={"rate_limit": {limit: 5}})).check()


def test_verl_s_names_of_the_limits_work() -> None:
    manager_of(load_config({"reward": {"reward_manager": {"name": "rate_limited"}, "max_rpm": 5}})).check()


async def test_it_scores_as_naive_does() -> None:
    config = config_of(reward_model={"rate_limit": {"max_rpm": 5}})
    naive = NaiveRewardManager(config, None, score)
    manager = manager_of(config)
    data = text_batch(["seven"])
    assert await manager.run_single(data) == await naive.run_single(data)
    for started in (manager, naive):
        started.close()

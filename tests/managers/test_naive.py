"""The manager that adds nothing: the reward is what the function says."""

from __future__ import annotations

from reward_loop.managers import RewardManagerBase
from reward_loop.managers.naive import NaiveRewardManager
from tests.fakes import config_of, text_batch


async def test_the_reward_is_what_the_function_says() -> None:
    manager = NaiveRewardManager(config_of(), None, lambda solution_str: {"score": 0.5, "pred": solution_str})
    assert await manager.run_single(text_batch(["42"])) == {
        "reward_score": 0.5,
        "reward_extra_info": {"score": 0.5, "pred": "42"},
    }
    manager.close()


def test_it_holds_nothing_of_its_own() -> None:
    assert {name for name in vars(NaiveRewardManager) if not name.startswith("__")} == {"kwargs_model"}
    assert NaiveRewardManager.run_single is RewardManagerBase.run_single

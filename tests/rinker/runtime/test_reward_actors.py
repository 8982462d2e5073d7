"""`service.runtime.rewards` puts the reward loop's workers in Ray actors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError
from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.data import open_scorer
from reward_loop.rinker.rl.types import Trajectory, Transition
from reward_loop.rinker.types import ModelInput
from tests.rinker.rl.copy_task import CopyEnv, copy_config

JUDGE = """
import os

def judge(solution_str):
    return {"score": float(solution_str == "1 2 3"), "pid": os.getpid()}
"""


class WithoutTokenizer:
    """A client of a model of bare tokens."""

    def get_tokenizer(self) -> Any:
        raise OSError("there is none")


@pytest.mark.ray
async def test_rewards_come_from_other_processes(ray_cluster: None, tmp_path: Path) -> None:
    judge = tmp_path / "judge.py"
    judge.write_text(JUDGE)
    rewards = {"reward_loop": {"custom_reward_function": {"path": str(judge), "name": "judge"}}}
    config = copy_config(tmp_path / "run", "base", rewards=rewards, service={"runtime": {"rewards": 1}})
    step = Transition(ModelInput.from_ints([10, 1, 2, 3, 11]), TokensWithLogprobs([1, 2, 3], [-1.0] * 3), 0.0, True)
    async with open_scorer(config, WithoutTokenizer()) as scorer:
        [reward] = await scorer.score("0-0", [(CopyEnv([1, 2, 3]), Trajectory([step], ModelInput.empty()))])
    assert reward.value == 1.0
    assert reward.metrics["pid"] != os.getpid()


async def test_actors_without_a_reward_loop_are_refused(tmp_path: Path) -> None:
    config = copy_config(tmp_path, "base", service={"runtime": {"rewards": 2}})
    with pytest.raises(ConfigError, match=r"service\.runtime\.rewards=2.*give rewards\.reward_loop"):
        async with open_scorer(config, WithoutTokenizer()):
            pass

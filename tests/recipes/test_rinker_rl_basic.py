"""recipes/rinker_rl_basic: a policy learns from random weights by the environment's rewards, or the same of the reward loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipes.rinker_rl_basic.copy_digits import share_correct
from recipes.rinker_rl_basic.make import make
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.train import train_rl
from tests.one_thread import one_thread as one_thread
from tests.recipes.rinker_runs import ROOT, mean, settings, values

FILE = ROOT / "recipes" / "rinker_rl_basic" / "copy_digits.py"
BUILDER = f"data.builder={FILE}"
BY_LOOP = f"rewards.reward_loop.custom_reward_function.path={FILE}"


def rewards(run: Path, *overrides: str, by_loop: bool = False) -> list[float]:
    """Train, and return the mean reward of each step."""
    make(run)
    layers = ("config.yaml", "reward_loop.yaml") if by_loop else ("config.yaml",)
    more = (BY_LOOP,) if by_loop else ()
    train_rl(settings(RLConfig, "rinker_rl_basic", run, BUILDER, *more, *overrides, layers=layers))
    return values(run, "reward/total")


@pytest.mark.parametrize(("answer", "reward"), [("407", 1.0), ("417", 2 / 3), ("47", 1 / 3), ("", 0.0), ("4070", 1.0)])
def test_the_reward_is_the_share_of_digits_at_their_place(answer: str, reward: float) -> None:
    assert share_correct(answer, "407") == pytest.approx(reward)


def test_the_reward_loop_gives_the_rewards_that_the_environment_gives(tmp_path: Path) -> None:
    few = ("data.kwargs.batches=3", "batch_size=4", "eval_every=0")
    assert rewards(tmp_path / "loop", *few, by_loop=True) == pytest.approx(rewards(tmp_path / "env", *few))


@pytest.mark.slow
@pytest.mark.parametrize("by_loop", [False, True], ids=["by the environment", "by the reward loop"])
def test_it_learns_to_copy(by_loop: bool, tmp_path: Path) -> None:
    curve = rewards(tmp_path, by_loop=by_loop)
    assert mean(curve[:3]) < 0.15
    assert mean(curve[-10:]) > 0.8
    assert values(tmp_path, "test/reward/total")[-1] > 0.8

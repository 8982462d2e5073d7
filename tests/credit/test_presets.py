"""Algorithms by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from reward_loop.credit import (
    SCALERL,
    VERL_GRPO,
    GroupNormalizedReturn,
    Normalization,
    RewardModelScorer,
    RLAlgorithm,
    RolloutStepKey,
    group_advantages,
    make_grpo_with_rm,
    make_reward_rl,
    make_rm_grpo_assigner,
    make_rm_scalerl_assigner,
    make_scalerl_with_rm,
)
from reward_loop.errors import ConfigError, DataError
from tests.credit.rollouts import TOLERANCE, pair, rollout
from tests.credit.test_reward_scorer import client_of
from tests.scoring.service import lengths, service


def rounded(weights: dict[RolloutStepKey, float]) -> list[float]:
    return [round(weight, 9) for weight in weights.values()]


def two_groups(b: Sequence[float], s: Sequence[float]) -> list[Any]:
    return [rollout(f"r{row}", [b[row]], row // 2, rm_score=s[row]) for row in range(4)]


def test_grpo_centres_what_was_combined() -> None:
    assert rounded(make_rm_grpo_assigner(2, "add").compute(pair())) == [0.2, -0.2]
    assert rounded(make_rm_grpo_assigner(2, rm_coeff=0.5).compute(pair())) == [0.35, -0.35]


def test_grpo_in_the_seeds_order_combines_what_was_centred() -> None:
    assert rounded(make_rm_grpo_assigner(2, stage="advantage").compute(pair())) == [0.7, 0.3]
    scaled = make_rm_grpo_assigner(2, "multiply", stage="advantage", normalization=VERL_GRPO).compute(pair(s=[1.0, 1.0]))
    assert list(scaled.values()) == group_advantages([1.0, 0.0], ["g"] * 2, VERL_GRPO)


def test_scalerl_divides_by_the_batchs_std() -> None:
    b, s = [1.0, 0.0, 0.5, 0.5], [0.2, 0.8, 0.0, 1.0]
    weights = make_rm_scalerl_assigner(2, "add").compute(two_groups(b, s))
    expected = group_advantages([x + y for x, y in zip(b, s, strict=True)], [0, 0, 1, 1], SCALERL)
    assert list(weights.values()) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("stage", ["reward", "advantage"])
def test_a_group_must_be_whole_counting_those_without_a_score(stage: Any) -> None:
    rollouts = [*pair(), rollout("failed", rm_score=None)]
    assert make_rm_grpo_assigner(3, stage=stage).compute(rollouts)["failed", 0] == 0.0
    with pytest.raises(DataError, match="has 3 samples, not group_size=2"):
        make_rm_grpo_assigner(2, stage=stage).compute(rollouts)
    with pytest.raises(ConfigError, match="group_size=0"):
        make_rm_grpo_assigner(0, stage=stage)


def test_steps_are_credited_by_either_stage() -> None:
    rollouts = [rollout("a", [1.0, 3.0], rm_score=[0.0, 0.0]), rollout("b", [0.0], rm_score=[0.0])]
    for stage in ("reward", "advantage"):
        assigner = make_rm_grpo_assigner(2, "add", score_level="step", stage=stage)
        assert list(assigner.compute(rollouts).values()) == [0.0, 2.0, -1.0]


@pytest.mark.parametrize("stage", ["reward", "advantage"])
def test_groups_may_be_told_otherwise(stage: Any) -> None:
    rollouts = [rollout(f"{name}-{row}", [row], None, rm_score=0.0) for name in "ab" for row in range(2)]
    assigner = make_rm_grpo_assigner(2, "add", stage=stage, group_key=lambda one: one.id[0])
    assert list(assigner.compute(rollouts).values()) == [-0.5, 0.5, -0.5, 0.5]


def test_algorithms_name_losses_that_trainers_know() -> None:
    grpo, scalerl, plain = make_grpo_with_rm(2), make_scalerl_with_rm(2), make_reward_rl()
    assert (grpo.name, grpo.loss, grpo.loss_config) == ("grpo_rm", "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2})
    assert (scalerl.loss, scalerl.loss_config) == ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0})
    assert (plain.loss, plain.loss_config) == ("importance_sampling", {})


def test_algorithms_carry_the_credit_of_their_assigners() -> None:
    assert make_grpo_with_rm(2, "add", alpha=0.1).credit_assigner == make_rm_grpo_assigner(2, "add", alpha=0.1)
    assert make_scalerl_with_rm(2, rm_coeff=2.0).credit_assigner == make_rm_scalerl_assigner(2, rm_coeff=2.0)


def test_plain_reward_rl_takes_the_scores_as_they_are() -> None:
    assert make_reward_rl().credit_assigner.compute(pair()) == {("r0", 0): 0.2, ("r1", 0): 0.8}
    assert make_reward_rl(stage="advantage").credit_assigner.compute(pair()) == {("r0", 0): 0.2, ("r1", 0): 0.8}
    assert rounded(make_reward_rl(normalization=Normalization("batch")).credit_assigner.compute(pair())) == [-0.3, 0.3]


async def test_an_algorithm_with_a_scorer_goes_from_rollouts_to_weights() -> None:
    rollouts = [rollout("a", [1.0]), rollout("b", [0.0, 0.0])]
    async with service(lengths) as server:
        algorithm = make_grpo_with_rm(2, "replace", scorer=RewardModelScorer(client_of(server)))
        weights = await algorithm.credit(rollouts)
    assert [one.meta["rm_score"] for one in rollouts] == [10.0, 21.0]
    assert weights == {("a", 0): -5.5, ("b", 0): 5.5, ("b", 1): 5.5}


async def test_an_algorithm_without_a_scorer_reads_what_is_there() -> None:
    assert await make_reward_rl().credit(pair()) == {("r0", 0): 0.2, ("r1", 0): 0.8}


async def test_a_scorer_that_writes_what_nobody_reads_is_refused() -> None:
    async with service(lengths) as server:
        for scorer in (RewardModelScorer(client_of(server), "other"), RewardModelScorer(client_of(server), score_level="step")):
            with pytest.raises(ConfigError, match="the credit assigner reads"):
                make_reward_rl(scorer=scorer)


def test_a_loss_of_another_name_is_refused() -> None:
    wrong: Any = "reinforce"
    with pytest.raises(ConfigError, match="loss='reinforce' is none of cross_entropy, importance_sampling, ppo"):
        RLAlgorithm("mine", GroupNormalizedReturn(), wrong)

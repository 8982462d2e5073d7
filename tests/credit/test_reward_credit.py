"""Scores of a reward model, combined with rewards or with credit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.credit import (
    SCALERL,
    VERL_GRPO,
    CombineMode,
    GroupNormalizedReturn,
    Normalization,
    RewardModelCreditAssigner,
    RolloutLike,
    RolloutStepKey,
    group_advantages,
)
from reward_loop.credit.combination import Combination
from reward_loop.errors import ConfigError, DataError, InvalidReward
from tests.credit.rollouts import TOLERANCE, pair, rollout
from tests.credit.test_rollout import TrainersRollout, TrainersStep

RAW = Normalization("none")
MODES: dict[CombineMode, dict[str, Any]] = {
    "replace": {},
    "add": {},
    "multiply": {},
    "weighted": {"alpha": 0.5},
    "bonus": {"rm_coeff": 0.5},
}
B, S = [1.0, 0.0], [0.2, 0.8]
COMBINED: list[tuple[CombineMode, list[float]]] = [
    ("replace", [0.2, 0.8]),
    ("add", [1.2, 0.8]),
    ("multiply", [0.2, 0.0]),
    ("weighted", [0.6, 0.4]),
    ("bonus", [1.1, 0.4]),
]


def values(assigner: RewardModelCreditAssigner, rollouts: Sequence[RolloutLike]) -> list[float]:
    return list(assigner.compute(rollouts).values())


class Constant:
    """An assigner of somebody else's, which keeps what it was shown."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self.shown: list[RolloutLike] = []

    def compute(self, rollouts: Sequence[RolloutLike]) -> dict[RolloutStepKey, float]:
        self.shown = list(rollouts)
        return {(rollout.id, step.index): self.weight for rollout in rollouts for step in rollout.steps}


@pytest.mark.parametrize(("mode", "expected"), COMBINED)
def test_each_mode_combines_rewards_as_its_name_says(mode: CombineMode, expected: list[float]) -> None:
    assigner = RewardModelCreditAssigner(mode, normalization=RAW, **MODES[mode])
    assert values(assigner, pair(B, S)) == pytest.approx(expected, abs=TOLERANCE)
    assert [Combination(mode, **MODES[mode])(b, s) for b, s in zip(B, S, strict=True)] == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize(("mode", "combined"), COMBINED)
def test_by_default_the_combined_rewards_are_centred(mode: CombineMode, combined: list[float]) -> None:
    mean = sum(combined) / 2
    expected = [value - mean for value in combined]
    assert values(RewardModelCreditAssigner(mode, **MODES[mode]), pair(B, S)) == pytest.approx(expected, abs=TOLERANCE)


def test_rewards_added_then_centred() -> None:
    assert values(RewardModelCreditAssigner("add"), pair(B, S)) == pytest.approx([0.2, -0.2], abs=TOLERANCE)


def test_the_seeds_order_adds_scores_to_centred_credit() -> None:
    assigner = RewardModelCreditAssigner("bonus", stage="advantage", inner_assigner=GroupNormalizedReturn())
    assert values(assigner, pair(B, S)) == pytest.approx([0.7, 0.3], abs=TOLERANCE)  # 1 in all, not 0: an offset


@pytest.mark.parametrize(
    ("mode", "expected"), [("replace", 0.2), ("add", 1.2), ("multiply", 0.2), ("weighted", 0.6), ("bonus", 1.1)]
)
def test_without_an_inner_assigner_the_seeds_base_is_one(mode: CombineMode, expected: float) -> None:
    assigner = RewardModelCreditAssigner(mode, stage="advantage", **MODES[mode])
    assert values(assigner, pair([99.0], [0.2])) == pytest.approx([expected], abs=TOLERANCE)


def test_a_negative_score_flips_credit_that_was_centred_before() -> None:
    rollouts = pair([1.0, 0.0], [-1.0, -1.0])
    literal = RewardModelCreditAssigner("multiply", stage="advantage", inner_assigner=GroupNormalizedReturn())
    assert values(literal, rollouts) == [-0.5, 0.5]


@pytest.mark.parametrize("mode", list(MODES))
def test_a_sequence_score_counts_once_however_many_steps_there_are(mode: CombineMode) -> None:
    one = [rollout("a", [1.0], rm_score=0.2), rollout("b", [0.0], rm_score=0.8)]
    many = [rollout("a", [0.25, 0.75], rm_score=0.2), rollout("b", [0.5, 0.5, -1.0], rm_score=0.8)]
    assigner = RewardModelCreditAssigner(mode, **MODES[mode])
    a, b = values(assigner, one)
    assert values(assigner, many) == pytest.approx([a, a, b, b, b], abs=TOLERANCE)


def test_a_score_per_step_is_combined_step_by_step() -> None:
    rollouts = [rollout("a", [1.0, 0.0], rm_score=[0.0, 3.0]), rollout("b", [0.0], rm_score=[0.0])]
    assigner = RewardModelCreditAssigner("add", score_level="step")
    # Combined [1, 3] and [0]; the averages are 2 and 0, so the baseline is 1.
    assert assigner.compute(rollouts) == {("a", 0): 0.0, ("a", 1): 2.0, ("b", 0): -1.0}
    literal = RewardModelCreditAssigner("add", score_level="step", stage="advantage", inner_assigner=Constant(10.0))
    assert values(literal, rollouts) == [10.0, 13.0, 10.0]


def test_each_way_to_normalize_is_that_of_the_bare_numbers() -> None:
    rollouts = [
        rollout(f"r{row}", [reward], group=row // 3, rm_score=row * row) for row, reward in enumerate([1.0, 0, 0, 1, 0.5, 0])
    ]
    rewards = [step.reward + one.meta["rm_score"] for one in rollouts for step in one.steps]
    for way in (VERL_GRPO, SCALERL):
        assigner = RewardModelCreditAssigner("add", normalization=way, group_size=3)
        assert values(assigner, rollouts) == group_advantages(rewards, [0, 0, 0, 1, 1, 1], way)


# -- samples that could not be scored ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("stage", ["reward", "advantage"])
def test_an_unscored_rollout_weighs_nothing_and_shifts_nobody(mode: CombineMode, stage: Any) -> None:
    inner = GroupNormalizedReturn() if stage == "advantage" else None
    assigner = RewardModelCreditAssigner(mode, stage=stage, inner_assigner=inner, group_size=None, **MODES[mode])
    with_it = assigner.compute([*pair(B, S), rollout("failed", [50.0, 7.0], rm_score=None)])
    assert with_it == {**assigner.compute(pair(B, S)), ("failed", 0): 0.0, ("failed", 1): 0.0}


def test_an_unscored_step_weighs_nothing_and_shifts_nobody() -> None:
    assigner = RewardModelCreditAssigner("add", score_level="step")
    whole = assigner.compute([rollout("a", [1.0, 0.0], rm_score=[0.0, 3.0]), rollout("b", rm_score=[0.0])])
    part = assigner.compute([rollout("a", [1.0, 9.0, 0.0], rm_score=[0.0, None, 3.0]), rollout("b", rm_score=[0.0])])
    assert [part["a", 0], part["a", 1], part["a", 2], part["b", 0]] == [whole["a", 0], 0.0, whole["a", 1], whole["b", 0]]


def test_unscored_rollouts_belong_to_their_group_all_the_same() -> None:
    rollouts = pair([1.0, 0.0, 0.5], [0.5, 0.5, None])
    assert values(RewardModelCreditAssigner("add", group_size=3), rollouts) == [0.5, -0.5, 0.0]
    with pytest.raises(DataError, match="has 3 samples, not group_size=2"):
        RewardModelCreditAssigner("add", group_size=2).compute(rollouts)


def test_nothing_scored_is_no_error() -> None:
    assert values(RewardModelCreditAssigner(), pair([1.0, 0.0], [None, None])) == [0.0, 0.0]
    assert RewardModelCreditAssigner().compute([rollout("empty", [], rm_score=1.0)]) == {}


# -- an inner assigner ------------------------------------------------------------------------------------------------------


def test_at_stage_reward_the_inner_assigner_sees_the_combined_rewards() -> None:
    inner = GroupNormalizedReturn(normalization=VERL_GRPO)
    assigner = RewardModelCreditAssigner("add", inner_assigner=inner)
    direct = RewardModelCreditAssigner("add", normalization=VERL_GRPO)
    assert assigner.compute(pair(B, S)) == direct.compute(pair(B, S))


def test_the_score_stands_at_the_last_step_so_that_returns_to_go_know_when_it_came() -> None:
    inner = Constant()
    RewardModelCreditAssigner("bonus", 2.0, inner_assigner=inner).compute([rollout("a", [1.0, 3.0], rm_score=0.5)])
    assert [step.reward for step in inner.shown[0].steps] == [1.0, 4.0]


def test_a_trainers_own_rollouts_stay_what_they_are() -> None:
    inner = Constant(2.0)
    own = TrainersRollout("a", [TrainersStep(4, "see", "do", 1.0)], {"rm_score": 0.5})
    assert RewardModelCreditAssigner("add", inner_assigner=inner).compute([own]) == {("a", 4): 2.0}
    assert inner.shown == [TrainersRollout("a", [TrainersStep(4, "see", "do", 1.5)], {"rm_score": 0.5})]
    assert own.steps[0].reward == 1.0


def test_an_inner_assigner_that_forgets_a_step_is_named() -> None:
    class Forgetful(Constant):
        def compute(self, rollouts: Sequence[RolloutLike]) -> dict[RolloutStepKey, float]:
            return {}

    for stage in ("reward", "advantage"):
        with pytest.raises(DataError, match="sample r0: inner_assigner gave step 0 no weight"):
            RewardModelCreditAssigner(stage=stage, inner_assigner=Forgetful()).compute(pair())


def test_an_inner_weight_that_is_no_number_is_an_error() -> None:
    with pytest.raises(InvalidReward, match="sample r0: the inner assigner's weight of step 0 must be a finite number"):
        RewardModelCreditAssigner(inner_assigner=Constant(float("nan"))).compute(pair())


# -- errors -----------------------------------------------------------------------------------------------------------------


def test_a_score_that_nobody_wrote_is_an_error_with_its_remedy() -> None:
    with pytest.raises(
        DataError, match=r"sample b: meta has no 'rm_score' .* let RewardModelScorer\(client, score_key='rm_score'\)"
    ):
        RewardModelCreditAssigner().compute([rollout("a", rm_score=1.0), rollout("b")])


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "high"])
def test_a_score_that_is_no_number_is_an_error(score: object) -> None:
    with pytest.raises(InvalidReward, match="sample r1: rm_score must be a finite number"):
        RewardModelCreditAssigner().compute(pair(B, [0.0, score]))


@pytest.mark.parametrize(
    ("level", "score", "remedy"),
    [("sequence", [1.0, 2.0], "set score_level='step'"), ("step", 1.0, "score_level='sequence'"), ("step", [1.0], "2 steps")],
)
def test_scores_of_the_other_level_are_an_error_that_says_so(level: Any, score: object, remedy: str) -> None:
    with pytest.raises(DataError, match=f"sample a: .*{remedy}"):
        RewardModelCreditAssigner(score_level=level).compute([rollout("a", [0.0, 0.0], rm_score=score)])


def test_a_product_beyond_all_bounds_is_an_error() -> None:
    with pytest.raises(InvalidReward, match="the combined reward of step 0"):
        RewardModelCreditAssigner("multiply").compute(pair([1e30], [1e30]))


def test_a_missing_group_is_an_error_unless_nothing_is_compared() -> None:
    alone = [rollout("a", [1.0], None, rm_score=2.0)]
    with pytest.raises(DataError, match="no group is named"):
        RewardModelCreditAssigner("add").compute(alone)
    assert values(RewardModelCreditAssigner("add", normalization=RAW), alone) == [3.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "max"},
        {"alpha": 1.5},
        {"rm_coeff": float("nan")},
        {"stage": "loss"},
        {"score_level": "token"},
        {"normalization": RAW, "stage": "advantage"},
        {"normalization": RAW, "inner_assigner": GroupNormalizedReturn()},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RewardModelCreditAssigner(**wrong)


# -- what holds for all rollouts ---------------------------------------------------------------------------------------------

number = st.floats(-1e3, 1e3, width=32)
batches = st.lists(
    st.tuples(st.lists(number, max_size=3), st.none() | number, st.sampled_from("ab")),
    max_size=6,
).map(lambda rows: [rollout(f"r{row}", rewards, group, rm_score=score) for row, (rewards, score, group) in enumerate(rows)])


@given(batches, st.sampled_from(list(MODES)), st.sampled_from(["reward", "advantage"]))
@settings(max_examples=60)
def test_every_step_of_every_rollout_gets_a_weight_whatever_the_order(rollouts: Any, mode: CombineMode, stage: Any) -> None:
    inner = GroupNormalizedReturn() if stage == "advantage" else None
    assigner = RewardModelCreditAssigner(mode, stage=stage, inner_assigner=inner)
    weights = assigner.compute(rollouts)
    assert list(weights) == [(one.id, step.index) for one in rollouts for step in one.steps]
    assert assigner.compute(rollouts[::-1]) == weights


@given(batches, st.sampled_from(list(MODES)))
@settings(max_examples=60)
def test_the_weights_of_a_groups_rollouts_sum_to_zero(rollouts: Any, mode: CombineMode) -> None:
    weights = RewardModelCreditAssigner(mode, **MODES[mode]).compute(rollouts)
    for group in "ab":
        firsts = [weights[one.id, 0] for one in rollouts if one.meta["group_id"] == group and one.steps]
        assert sum(firsts) == pytest.approx(0.0, abs=1e-9 * max([1.0, *map(abs, firsts)]))

"""Rubrics made of rubrics: in order, gated, weighted, in lists and dicts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from reward_loop.rubrics.containers import Gate, RubricDict, RubricList, Sequential, WeightedSum
from reward_loop.rubrics.rubric import Rubric
from tests.rubrics.scoring_rubrics import STEP, Awaited, Fixed, Hanging, Meeting, Raising


async def settled(rubric: Rubric) -> float:
    return float(await rubric(*STEP))


# -- in order ----------------------------------------------------------------------------------------------------------


async def test_an_empty_sequence_gives_1() -> None:
    assert Sequential()(*STEP) == 1.0
    assert await settled(Sequential()) == 1.0


@pytest.mark.parametrize(
    "kinds", [(Fixed, Fixed, Fixed), (Awaited, Awaited, Awaited), (Fixed, Awaited, Fixed), (Awaited, Fixed, Awaited)]
)
async def test_a_sequence_gives_the_last_score_and_calls_each_rubric_once(kinds: Sequence[type[Fixed]]) -> None:
    rubrics = [kind(score) for kind, score in zip(kinds, (1.0, 0.8, 0.7), strict=True)]
    assert await settled(Sequential(*rubrics)) == 0.7
    assert [rubric.calls for rubric in rubrics] == [1, 1, 1]


@pytest.mark.parametrize(
    "kinds", [(Fixed, Fixed, Fixed), (Awaited, Awaited, Awaited), (Fixed, Awaited, Fixed), (Awaited, Fixed, Awaited)]
)
async def test_a_0_ends_a_sequence_with_0(kinds: Sequence[type[Fixed]]) -> None:
    rubrics = [kind(score) for kind, score in zip(kinds, (1.0, 0.0, 0.7), strict=True)]
    assert await settled(Sequential(*rubrics)) == 0.0
    assert [rubric.calls for rubric in rubrics] == [1, 1, 0]


async def test_a_sequence_of_synchronous_rubrics_gives_a_number_where_a_loop_runs() -> None:
    assert isinstance(Sequential(Fixed(0.5))(*STEP), float)
    assert isinstance(Sequential(Fixed(0.0))(*STEP), float)


def test_a_sequence_knows_its_rubrics() -> None:
    first, second = Fixed(), Fixed()
    rubric = Sequential(first, second)
    assert (len(rubric), rubric[1], rubric.get_rubric("rubric_0")) == (2, second, first)


# -- gated -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Fixed, Awaited])
@pytest.mark.parametrize(("score", "passed"), [(0.8, 0.8), (0.5, 0.5), (0.499, 0.0), (-1.0, 0.0)])
async def test_a_gate_lets_its_threshold_and_more_pass(kind: type[Fixed], score: float, passed: float) -> None:
    assert await settled(Gate(kind(score), threshold=0.5)) == passed


async def test_a_gate_wants_1_unless_told_otherwise() -> None:
    assert await settled(Gate(Fixed(1.0))) == 1.0
    assert await settled(Gate(Fixed(0.99))) == 0.0


# -- weighted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [(Fixed, Fixed), (Awaited, Awaited), (Fixed, Awaited), (Awaited, Fixed)])
async def test_a_weighted_sum_adds_up(kinds: Sequence[type[Fixed]]) -> None:
    rubric = WeightedSum([kinds[0](0.6), kinds[1](0.8)], [0.25, 0.75])
    assert await settled(rubric) == pytest.approx(0.75)


def test_a_weighted_sum_loses_nothing_to_rounding() -> None:
    assert WeightedSum([Fixed(1.0)] * 10, [0.1] * 10)(*STEP) == 1.0


async def test_a_weighted_sum_awaits_its_rubrics_at_the_same_time() -> None:
    barrier = asyncio.Barrier(3)
    rubric = WeightedSum([Meeting(barrier), Sequential(Meeting(barrier)), Meeting(barrier)], [0.5, 0.25, 0.25])
    assert await settled(rubric) == 1.0


@pytest.mark.parametrize("weights", [[0.5, 0.6], [1.0, 1.1e-6], [-10.0, 1.0], [float("nan"), 1.0]])
def test_weights_must_sum_to_1(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="sum to"):
        WeightedSum([Fixed(), Fixed()], weights)


def test_weights_may_miss_1_by_a_millionth() -> None:
    assert WeightedSum([Fixed(), Fixed()], [1.0, 0.9e-6]).weights == [1.0, 0.9e-6]


def test_each_rubric_needs_a_weight() -> None:
    with pytest.raises(ValueError, match="2 rubrics have 1 weights"):
        WeightedSum([Fixed(), Fixed()], [1.0])


def test_the_weights_that_are_given_out_are_a_copy() -> None:
    rubric = WeightedSum([Fixed()], [1.0])
    rubric.weights.append(2.0)
    assert rubric.weights == [1.0]


async def test_the_first_failure_ends_the_others_of_a_weighted_sum() -> None:
    hanging = Hanging()

    class FailsLater(Rubric):
        async def forward(self, action: Any, observation: Any) -> float:
            await hanging.began.wait()
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        await settled(WeightedSum([hanging, FailsLater()], [0.5, 0.5]))
    assert hanging.cancelled


def test_a_synchronous_failure_leaves_no_coroutine_behind() -> None:
    with pytest.raises(ValueError, match="no such luck"):
        WeightedSum([Awaited(), Sequential(Awaited()), Raising()], [0.5, 0.25, 0.25])(*STEP)
    gc.collect()


async def test_a_weighted_sum_that_is_cancelled_before_it_begins_leaves_no_coroutine_behind() -> None:
    pending: Any = WeightedSum([Awaited(), Sequential(Awaited())], [0.5, 0.5])(*STEP)
    task = asyncio.create_task(pending)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gc.collect()


async def test_a_weighted_sum_that_is_cancelled_ends_its_rubrics() -> None:
    hanging = Hanging()
    pending: Any = WeightedSum([hanging, Awaited()], [0.5, 0.5])(*STEP)
    task = asyncio.create_task(pending)
    await hanging.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hanging.cancelled


def test_a_checkpoint_holds_the_weights() -> None:
    rubric = WeightedSum([Fixed(0.0), Fixed(1.0)], [0.25, 0.75])
    other = WeightedSum([Fixed(0.0), Fixed(1.0)], [0.5, 0.5])
    other.load_state_dict(rubric.state_dict())
    assert other(*STEP) == 0.75


# -- nested ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Fixed, Awaited])
async def test_containers_nest(kind: type[Fixed]) -> None:
    chain = Sequential(Gate(kind(1.0)), Gate(kind(0.6), threshold=0.5), kind(0.8))
    assert await settled(WeightedSum([chain, kind(0.6)], [0.7, 0.3])) == pytest.approx(0.74)


@pytest.mark.parametrize("kind", [Fixed, Awaited])
async def test_a_closed_gate_ends_a_sequence(kind: type[Fixed]) -> None:
    last = kind(0.9)
    assert await settled(Sequential(Gate(kind(0.3), threshold=0.5), last)) == 0.0
    assert last.calls == 0


# -- lists and dicts ---------------------------------------------------------------------------------------------------


def test_a_list_holds_rubrics_by_number() -> None:
    first, second, third = Fixed(), Fixed(), Fixed()
    rubrics = RubricList([first])
    rubrics.append(second)
    rubrics.extend([third])
    assert (len(rubrics), list(rubrics), rubrics[1]) == (3, [first, second, third], second)
    assert [name for name, _ in rubrics.named_children()] == ["rubric_0", "rubric_1", "rubric_2"]


def test_a_dict_holds_rubrics_by_name() -> None:
    pong, chess = Fixed(), Fixed()
    games = RubricDict({"pong": pong})
    games["chess"] = chess
    assert (len(games), list(games), games["chess"], "go" in games) == (2, ["pong", "chess"], chess, False)
    assert (list(games.keys()), list(games.values())) == (["pong", "chess"], [pong, chess])
    assert dict(games.items()) == {"pong": pong, "chess": chess}
    assert games.get_rubric("chess") is chess


@pytest.mark.parametrize("name", ["forward", "a.b", "", "reset", "keys"])
def test_a_dict_refuses_names_that_hide_its_methods_or_break_paths(name: str) -> None:
    with pytest.raises(ValueError, match="can't be called"):
        RubricDict({name: Fixed()})


def test_a_dict_forgets_a_rubric_that_is_set_to_none() -> None:
    games = RubricDict({"pong": Fixed()})
    games["pong"] = None
    assert len(games) == 0


@pytest.mark.parametrize("container", [RubricList([Fixed()]), RubricDict({"pong": Fixed()})])
def test_a_list_and_a_dict_leave_the_choice_to_whoever_holds_them(container: Rubric) -> None:
    with pytest.raises(NotImplementedError):
        container(*STEP)


async def test_a_rubric_may_hand_on_what_a_child_gives_unawaited() -> None:
    class ByGame(Rubric):
        def __init__(self) -> None:
            self.games = RubricDict({"pong": Fixed(0.3), "chess": Awaited(0.4)})

        def forward(self, action: Any, observation: Any) -> Any:
            return self.games[observation](action, observation)

    rubric = ByGame()
    assert rubric("", "pong") == 0.3
    assert await rubric("", "chess") == 0.4
    assert rubric.last_score == 0.4

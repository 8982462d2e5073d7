"""One call per unit, whatever the manager scores at a time."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.data import DataProto
from reward_loop.errors import InvalidReward, Unscorable
from reward_loop.managers import RewardManagerBase, get_reward_manager_cls
from reward_loop.managers.scorer import Unit, scorer_of, unit_of
from reward_loop.outcome import Reward
from tests.fakes import config_of, text_batch, token_batch


class Single(RewardManagerBase):
    result: Any = None

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        return self.result  # type: ignore[no-any-return]


class Group(Single):
    async def run_group(self, data: DataProto) -> Any:
        return self.result


class Batch(Group):
    async def run_batch(self, data: DataProto) -> Any:
        return self.result


def manager(kind: type[Single], result: Any) -> Single:
    built = kind(config_of(), None, lambda solution_str: 1.0)
    built.result = result
    return built


def ok(score: Any) -> dict[str, Any]:
    return {"reward_score": score, "reward_extra_info": {}}


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        (Single, "single"),
        (Group, "group"),
        (Batch, "batch"),
        *((get_reward_manager_cls(name), "single") for name in ("naive", "dapo", "gdpo", "prime", "remote")),
        (get_reward_manager_cls("group"), "group"),
        (get_reward_manager_cls("batch"), "batch"),
    ],
)
def test_what_is_scored_at_a_time_follows_from_the_methods(kind: type, unit: Unit) -> None:
    assert unit_of(kind) == unit


def test_an_instance_is_as_good_as_its_class() -> None:
    assert unit_of(manager(Group, None)) == "group"


async def test_a_single_sample_gives_one_reward() -> None:
    assert await scorer_of(manager(Single, ok(0.5)))(text_batch(["a"])) == [Reward(0.5)]


async def test_a_single_result_is_checked() -> None:
    with pytest.raises(InvalidReward, match="run_single must return"):
        await scorer_of(manager(Single, 0.5))(text_batch(["a"]))
    with pytest.raises(InvalidReward, match="1 per-token rewards for 3 response tokens"):
        await scorer_of(manager(Single, ok([1.0])))(token_batch(["a", "bc"]))


@pytest.mark.parametrize("kind", [Group, Batch])
async def test_many_rows_give_one_reward_each(kind: type[Single]) -> None:
    results = [ok(1.0), ok([0.5, 0.5, 0.5])]
    assert await scorer_of(manager(kind, results))(token_batch(["a", "bc"])) == [Reward(1.0), Reward(1.5, {}, (0.5,) * 3)]


@pytest.mark.parametrize("kind", [Group, Batch])
async def test_a_row_that_failed_costs_itself_only(kind: type[Single]) -> None:
    boom = ValueError("boom")
    rows = await scorer_of(manager(kind, [boom, None, 0.5, ok([1.0]), ok("x"), ok(1.0)]))(token_batch(["a"] * 6))
    assert rows[0] is boom
    assert isinstance(rows[1], Unscorable)
    assert [type(row) for row in rows[2:5]] == [InvalidReward] * 3
    assert rows[5] == Reward(1.0)


async def test_a_row_with_malformed_extra_info_costs_itself_only() -> None:
    results = [{"reward_score": 1.0, "reward_extra_info": ["x"]}, ok(1.0)]
    rows = await scorer_of(manager(Batch, results))(text_batch(["a", "b"]))
    assert isinstance(rows[0], InvalidReward)
    assert rows[1] == Reward(1.0)


@pytest.mark.parametrize(("kind", "method"), [(Group, "run_group"), (Batch, "run_batch")])
@pytest.mark.parametrize("wrong", [[ok(1.0)], None, ok(1.0), {"a": 1, "b": 2}])
async def test_many_rows_need_as_many_results(kind: type[Single], method: str, wrong: object) -> None:
    with pytest.raises(InvalidReward, match=f"{method} must return 2 results, one per row; it returned"):
        await scorer_of(manager(kind, wrong))(text_batch(["a", "b"]))

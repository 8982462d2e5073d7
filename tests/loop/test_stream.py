from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import torch

from reward_loop import DataProto, RewardLoopManager
from reward_loop.errors import ConfigError
from reward_loop.loop.stream import GroupCollector
from tests.fakes import config_of, text_batch

WAIT_S = 20.0


def manager_for(function: Any, group_size: int = 1, **reward_model: Any) -> RewardLoopManager:
    rollout = {"rollout": {"n": group_size}}
    return RewardLoopManager(config_of(reward_model=reward_model, actor_rollout_ref=rollout), compute_score=function)


def length(solution_str: str) -> float:
    return float(len(solution_str))


def lengths(solution_strs: list[str]) -> list[float]:
    return [float(len(solution_strs))] * len(solution_strs)


async def collect(manager: RewardLoopManager, samples: Any, **options: Any) -> dict[tuple[int, int], str | float]:
    """The value or status of every row, after checking that none came twice."""
    found: dict[tuple[int, int], str | float] = {}
    async for scored in manager.stream(samples, **options):
        assert (scored.item, scored.row) not in found
        reward = scored.outcome.reward
        found[scored.item, scored.row] = reward.value if reward else scored.outcome.status
    return found


async def arriving(*samples: DataProto) -> AsyncIterator[DataProto]:
    for sample in samples:
        await asyncio.sleep(0)
        yield sample


# -- what goes in and comes out --------------------------------------------------------------------------------------


async def test_every_row_of_every_item_comes_out_once() -> None:
    items = [text_batch(["a"]), text_batch(["bb", "ccc"]), text_batch([]), text_batch(["", "dddd"])]
    expected = {(0, 0): 1.0, (1, 0): 2.0, (1, 1): 3.0, (3, 0): "unscorable", (3, 1): 4.0}
    with manager_for(length) as manager:
        assert await collect(manager, items) == expected
        assert await collect(manager, iter(items)) == expected
        assert await collect(manager, arriving(*items)) == expected


async def test_a_stream_without_items_ends() -> None:
    with manager_for(length) as manager:
        assert await collect(manager, []) == {}


@pytest.mark.parametrize("use_reward_loop", [True, False])
async def test_a_long_stream_loses_nothing(use_reward_loop: bool) -> None:
    with manager_for(length, use_reward_loop=use_reward_loop) as manager:
        found = await collect(manager, (text_batch(["x" * (i % 7)]) for i in range(500)), max_pending=16)
    assert found == {(i, 0): float(i % 7) or "unscorable" for i in range(500)}


async def test_a_slow_sample_does_not_hold_the_fast_ones_back() -> None:
    fast_ones_are_out, order = threading.Event(), list[int]()

    async def slow_first(solution_str: str) -> float:
        if solution_str == "slow":
            await asyncio.to_thread(fast_ones_are_out.wait, WAIT_S)
        return 1.0

    with manager_for(slow_first) as manager:
        async for scored in manager.stream(map(text_batch, (["slow"], ["a"], ["b"], ["c"]))):
            order.append(scored.item)
            if len(order) == 3:
                fast_ones_are_out.set()
    assert sorted(order[:3]) == [1, 2, 3]
    assert order[3] == 0


async def test_samples_are_scored_while_the_producer_is_still_producing() -> None:
    first_is_out = asyncio.Event()

    async def one_after_the_other() -> AsyncIterator[DataProto]:
        yield text_batch(["a"])
        await asyncio.wait_for(first_is_out.wait(), WAIT_S)
        yield text_batch(["b"])

    with manager_for(length) as manager:
        async for _ in manager.stream(one_after_the_other()):
            first_is_out.set()
    assert first_is_out.is_set()


async def test_a_plain_iterator_does_not_run_to_its_end_before_anything_is_scored() -> None:
    scored_one = threading.Event()

    def judge(solution_str: str) -> float:
        scored_one.set()
        return 1.0

    def waits_after_the_first() -> Iterator[DataProto]:
        yield text_batch(["a"])
        assert scored_one.wait(WAIT_S)
        yield text_batch(["b"])

    with manager_for(judge) as manager:
        assert await collect(manager, waits_after_the_first()) == {(0, 0): 1.0, (1, 0): 1.0}


# -- back-pressure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_pending", [1, 3])
async def test_the_producer_is_never_more_than_max_pending_ahead_of_the_consumer(max_pending: int) -> None:
    produced = consumed = ahead = 0

    def producer() -> Iterator[DataProto]:
        nonlocal produced, ahead
        for _ in range(30):
            produced += 1
            ahead = max(ahead, produced - consumed)
            yield text_batch(["a"])

    with manager_for(length) as manager:
        async for _ in manager.stream(producer(), max_pending=max_pending):
            consumed += 1
            for _ in range(5):  # a slow consumer: the producer could run on meanwhile
                await asyncio.sleep(0)
    assert (produced, consumed) == (30, 30)
    assert ahead == max_pending


async def test_a_slow_grader_holds_the_producer_back_too() -> None:
    release, produced = threading.Event(), list[DataProto]()

    def grader(solution_str: str) -> float:
        release.wait(WAIT_S)
        return 1.0

    def producer() -> Iterator[DataProto]:
        for _ in range(6):
            produced.append(text_batch(["a"]))
            yield produced[-1]

    async def release_later() -> int:
        for _ in range(50):
            await asyncio.sleep(0)
        release.set()
        return len(produced)

    with manager_for(grader) as manager:
        async with asyncio.TaskGroup() as tasks:
            found = tasks.create_task(collect(manager, producer(), max_pending=2))
            produced_before = tasks.create_task(release_later())
    assert produced_before.result() == 2
    assert len(found.result()) == 6


async def test_an_item_with_more_rows_than_the_limit_is_taken_alone() -> None:
    items = [text_batch(["a"]), text_batch(["b"] * 5), text_batch(["c"])]
    with manager_for(length) as manager:
        assert len(await collect(manager, items, max_pending=2)) == 7


# -- failures --------------------------------------------------------------------------------------------------------


async def test_a_failed_sample_is_an_outcome_whatever_on_error_says() -> None:
    def fails_on_b(solution_str: str) -> float:
        return 1.0 / (solution_str != "b")

    with manager_for(fails_on_b, on_error="raise") as manager:
        assert await collect(manager, [text_batch(["a", "b"]), text_batch(["c"])]) == {(0, 0): 1.0, (0, 1): "error", (1, 0): 1.0}


async def test_a_malformed_item_costs_only_itself() -> None:
    def judge(solution_str: str, ground_truth: str) -> float:
        return 1.0

    items: list[Any] = [text_batch(["a"]), text_batch(["b", "c"], reward_model=None), {"no": "batch"}, text_batch(["d"])]
    with manager_for(judge) as manager:
        assert await collect(manager, items) == {(0, 0): 1.0, (1, 0): "error", (1, 1): "error", (2, 0): "error", (3, 0): 1.0}


async def test_an_error_of_the_producer_comes_after_what_it_gave_before() -> None:
    async def breaks() -> AsyncIterator[DataProto]:
        yield text_batch(["a", "b"])
        yield text_batch(["c"])
        raise ConnectionError("the rollout server is gone")

    found: list[tuple[int, int]] = []

    async def consume(manager: RewardLoopManager) -> None:
        async for scored in manager.stream(breaks()):
            found.append((scored.item, scored.row))  # noqa: PERF401 - an extend would lose what came before the error

    with manager_for(length) as manager, pytest.raises(ConnectionError, match="the rollout server is gone"):
        await consume(manager)
    assert sorted(found) == [(0, 0), (0, 1), (1, 0)]


async def test_what_no_sample_can_be_scored_with_ends_the_stream_as_itself() -> None:
    items = [DataProto.from_dict({"responses": torch.ones(1, 2, dtype=torch.int64)})] * 3
    with manager_for(length) as manager, pytest.raises(ConfigError, match="there is no tokenizer"):
        await collect(manager, items)


async def test_leaving_early_cancels_what_is_under_way() -> None:
    cancelled = threading.Event()

    async def waits_on_b(solution_str: str) -> float:
        if solution_str == "b":
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
        return 1.0

    async def endless() -> AsyncIterator[DataProto]:
        yield text_batch(["b"])
        while True:
            yield text_batch(["a"])

    with manager_for(waits_on_b) as manager:
        async for _ in manager.stream(endless(), max_pending=4):
            break
        assert await asyncio.to_thread(cancelled.wait, WAIT_S)
        assert await collect(manager, [text_batch(["a"])]) == {(0, 0): 1.0}


# -- groups ----------------------------------------------------------------------------------------------------------


def grouped(*uids: object) -> list[DataProto]:
    return [text_batch(["x"], uid=[uid]) for uid in uids]


async def test_a_group_is_scored_when_its_last_sample_is_there() -> None:
    with manager_for(lengths, group_size=3, reward_manager={"name": "group"}) as manager:
        found = await collect(manager, grouped("p", "q", "p", "q", "p", "q"))
    assert found == {(item, 0): 3.0 for item in range(6)}


async def test_a_group_that_stays_incomplete_is_scored_at_the_end() -> None:
    with manager_for(lengths, group_size=3, reward_manager={"name": "group"}) as manager:
        found = await collect(manager, arriving(*grouped("p", "q", "p", "p", "q")))
    assert found == {(0, 0): 3.0, (2, 0): 3.0, (3, 0): 3.0, (1, 0): 2.0, (4, 0): 2.0}


async def test_a_limit_below_the_groups_size_does_not_stop_the_stream() -> None:
    with manager_for(lengths, group_size=4, reward_manager={"name": "group"}) as manager:
        found = await collect(manager, grouped(*[0, 1, 2] * 4), max_pending=2)
    assert found == {(item, 0): 4.0 for item in range(12)}


async def test_samples_that_do_not_fit_together_cost_their_group_only() -> None:
    def item(width: int, uid: str) -> DataProto:
        responses = {"responses": torch.ones(1, width, dtype=torch.int64)}
        return DataProto.from_dict(responses, {"uid": [uid], "solution_str": ["x"]})

    with manager_for(lengths, group_size=2, reward_manager={"name": "group"}) as manager:
        found = await collect(manager, [item(3, "p"), item(4, "p"), item(5, "q"), item(5, "q")])
    assert found == {(0, 0): "error", (1, 0): "error", (2, 0): 2.0, (3, 0): 2.0}


def test_the_collector_holds_a_sample_until_its_group_is_there() -> None:
    groups = GroupCollector(2)
    a, b, c = grouped("p", "q", "p")
    assert groups.add(0, a) is None
    assert groups.add(1, b) is None
    assert groups.held == 2
    assert groups.add(2, c) == [(0, a), (2, c)]
    assert groups.held == 1
    assert groups.rest() == [[(1, b)]]


def test_the_collector_passes_on_what_belongs_to_no_group_of_its_size() -> None:
    groups = GroupCollector(2)
    for data in (text_batch(["a"]), text_batch(["a"], uid=[None]), text_batch(["a", "b"], uid=["p", "p"])):
        assert groups.add(0, data) == [(0, data)]
    assert GroupCollector(1).add(0, text_batch(["a"], uid=["p"])) is not None


async def test_samples_that_come_in_one_go_but_fit_no_common_batch_are_scored_all_the_same() -> None:
    async def compute_score(solution_str: str, extra_info: dict[str, object]) -> float:
        return float(len(solution_str)) + float(str(extra_info.get("bonus", 0)))

    samples = [
        text_batch(["a"]),
        text_batch(["bb"], extra_info=[{"bonus": 10}], another=["column"]),
        DataProto.from_dict(non_tensors={"data_source": ["no response"]}),
        text_batch(["ccc"]),
    ]
    with RewardLoopManager({}, compute_score=compute_score) as manager:
        outcomes = {scored.item: scored.outcome async for scored in manager.stream(samples)}
    assert [outcomes[item].status for item in range(4)] == ["ok", "ok", "error", "ok"]
    assert [outcome.reward.value for item in (0, 1, 3) if (outcome := outcomes[item]).reward] == [1.0, 12.0, 3.0]

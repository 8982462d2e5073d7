"""From rows to batches and back: every row ends once, at its own place, and little is read ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from reward_loop import RewardLoopManager
from reward_loop.errors import DataError
from reward_loop.outcome import Outcome
from reward_loop.runs.batches import chunk_rows, score_chunks, to_batch
from reward_loop.runs.fields import FieldMap, Row, RowError
from reward_loop.runs.source import Chunk
from tests.fakes import config_of
from tests.results import rows as rows_of

TEXT = FieldMap("response", ground_truth="gt", uid="uid", constant_data_source="fake")
IDS = FieldMap("response", constant_data_source="fake", response_kind="ids")
WAIT_S = 20.0


def length(solution_str: str) -> float:
    return float(len(solution_str))


def manager_for(function: Any, n: int = 1, **reward_model: Any) -> RewardLoopManager:
    sections = {"reward_model": reward_model, "actor_rollout_ref": {"rollout": {"n": n}}}
    return RewardLoopManager(config_of(**sections), compute_score=function)


async def ended(manager: RewardLoopManager, chunks: list[Chunk], fields: FieldMap = TEXT) -> dict[tuple[int, int], Outcome]:
    """Score all rows: outcomes by chunk and row."""
    outcomes: dict[tuple[int, int], Outcome] = {}

    def end(chunk: Chunk, row: int, outcome: Outcome) -> None:
        assert (chunk.index, row) not in outcomes, "a row must end once"
        outcomes[chunk.index, row] = outcome

    await score_chunks(manager, [(chunk, range(len(chunk.rows))) for chunk in chunks], fields, end)
    return outcomes


def texts(index: int, *responses: object, first_row: int = 0, uid: str | None = None) -> Chunk:
    return Chunk(index, first_row, [{"response": response, "gt": "1", "uid": uid} for response in responses])


# -- to a batch ------------------------------------------------------------------------------------------------------


def test_token_ids_become_right_padded_responses_with_their_lengths() -> None:
    data, errors = to_batch([{"response": [5, 6, 7]}, {"response": []}, {"response": [0]}], IDS, 0)
    assert rows_of(data, "responses") == [[5, 6, 7], [0, 0, 0], [0, 0, 0]]
    assert rows_of(data, "response_len") == [3, 0, 1]
    assert errors == [None, None, None]


def test_rows_that_cannot_be_scored_are_left_out_of_the_batch_and_named() -> None:
    broken = RowError(8, DataError("line 9: no JSON"))
    data, errors = to_batch([{"response": "a"}, broken, {"response": 5}, {"response": "b"}], TEXT, 7)
    assert rows_of(data, "solution_str") == ["a", "b"]
    assert errors[0] is errors[3] is None
    assert errors[1] is broken
    assert errors[2] is not None
    assert "row 9: field 'response' holds int 5" in str(errors[2].error)


# -- and back --------------------------------------------------------------------------------------------------------


async def test_every_row_ends_once_at_its_own_place() -> None:
    chunks = [texts(0, "a", "bb"), texts(1, "ccc", 5, "", "dddd", first_row=2), texts(2, None, first_row=6)]
    with manager_for(length) as manager:
        outcomes = await ended(manager, chunks)
    rewards = {place: outcome.reward.value for place, outcome in outcomes.items() if outcome.reward}
    assert rewards == {(0, 0): 1, (0, 1): 2, (1, 0): 3, (1, 3): 4}
    assert {place: outcome.status for place, outcome in outcomes.items() if not outcome.reward} == {
        (1, 1): "error",
        (1, 2): "unscorable",
        (2, 0): "error",
    }
    assert "row 6: field 'response' holds nothing" in outcomes[2, 0].message


async def test_only_the_rows_that_are_asked_for_are_scored() -> None:
    seen: list[tuple[int, str]] = []
    with manager_for(length) as manager:
        work = [(texts(0, "a", "bb", "ccc"), [0, 2]), (texts(1, "dddd", first_row=3), [])]
        await score_chunks(manager, work, TEXT, lambda chunk, row, outcome: seen.append((row, outcome.status)))
    assert sorted(seen) == [(0, "ok"), (2, "ok")]


async def test_chunks_are_not_read_without_end_while_each_waits_for_a_slow_row() -> None:
    read: list[int] = []
    go = asyncio.Event()
    fast_rows_ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow_at_times(solution_str: str) -> float:
        if solution_str == "slow":
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go.wait(), loop))
        return 1.0

    def work() -> Iterator[tuple[Chunk, range]]:
        for index in range(100):
            read.append(index)
            yield texts(index, "slow", "fast"), range(2)

    fast = 0

    def end(chunk: Chunk, row: int, outcome: Outcome) -> None:
        nonlocal fast
        fast += row
        if fast == 16:
            fast_rows_ended.set()

    with manager_for(slow_at_times) as manager:
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(score_chunks(manager, work(), TEXT, end))
            await fast_rows_ended.wait()
            assert len(read) == 16
            go.set()
    assert (len(read), fast) == (100, 100)


async def test_the_next_chunk_is_begun_while_the_last_rows_of_one_are_scored_whatever_the_concurrency() -> None:
    both = asyncio.Barrier(2)
    loop = asyncio.get_running_loop()

    async def meet(solution_str: str) -> float:
        if solution_str == "meets":
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(both.wait(), loop))
        return 1.0

    with manager_for(meet, max_concurrency=2) as manager:
        async with asyncio.timeout(WAIT_S):
            assert len(await ended(manager, [texts(0, "a", "meets"), texts(1, "meets", "b")])) == 4


async def test_an_error_of_the_reading_comes_as_itself_after_the_rows_before_it() -> None:
    seen: list[str] = []

    def work() -> Iterator[tuple[Chunk, range]]:
        yield texts(0, "a"), range(1)
        raise DataError("the file ends here")

    with manager_for(length) as manager, pytest.raises(DataError, match="the file ends here"):
        await score_chunks(manager, work(), TEXT, lambda chunk, row, outcome: seen.append(outcome.status))
    assert seen == ["ok"]


# -- groups and batches ----------------------------------------------------------------------------------------------


def share(solution_strs: list[str]) -> list[float]:
    """Each sample's share of the words of all that were given together."""
    return [len(text) / sum(map(len, solution_strs)) for text in solution_strs]


@pytest.mark.parametrize(("unit", "n", "rows"), [("naive", 7, 512), ("batch", 7, 512), ("group", 1, 512), ("group", 7, 518)])
def test_a_chunk_holds_whole_groups(unit: str, n: int, rows: int) -> None:
    with manager_for(length if unit == "naive" else share, n, reward_manager={"name": unit}) as manager:
        assert chunk_rows(manager) == rows


async def test_groups_are_scored_together_and_batches_chunk_by_chunk() -> None:
    def group(*pairs: tuple[str, str]) -> list[Row | RowError]:
        return [{"response": text, "uid": uid} for uid, text in pairs]

    rows = group(("p", "a"), ("q", "bbb"), ("p", "ccc"), ("q", "b"))
    with manager_for(share, 2, reward_manager={"name": "group"}) as manager:
        by_group = await ended(manager, [Chunk(0, 0, rows)])
    with manager_for(share, reward_manager={"name": "batch"}) as manager:
        by_chunk = await ended(manager, [Chunk(0, 0, rows[:2]), Chunk(1, 2, rows[2:])])
    assert [outcome.reward and outcome.reward.value for _, outcome in sorted(by_group.items())] == [0.25, 0.75, 0.75, 0.25]
    assert [outcome.reward and outcome.reward.value for _, outcome in sorted(by_chunk.items())] == [0.25, 0.75, 0.75, 0.25]


async def test_a_group_that_lies_in_two_chunks_is_refused_and_not_scored_in_halves() -> None:
    chunks = [texts(0, "a", "b", uid="p"), texts(1, "c", first_row=2, uid="p")]
    refused = pytest.raises(DataError, match=r"row 2: its group 'p' began in the chunk .*actor_rollout_ref\.rollout\.n")
    with manager_for(share, 2, reward_manager={"name": "group"}) as manager, refused:
        await ended(manager, chunks)


async def test_chunks_that_do_not_follow_each_other_are_not_compared() -> None:
    chunks = [texts(0, "a", uid="p"), texts(2, "b", first_row=4, uid="p")]
    with manager_for(share, reward_manager={"name": "group"}) as manager:
        assert len(await ended(manager, chunks)) == 2

"""Synchronous functions in threads: `RewardLoopWorker` takes this path for every function that is not declared async."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch

from reward_loop import DataProto, RewardLoopWorker
from reward_loop.outcome import Outcome
from tests.fakes import config_of, text_batch

WAIT_S = 20.0  # a test that gets here has failed


def worker_for(function: Callable[..., Any], **reward_model: Any) -> RewardLoopWorker:
    return RewardLoopWorker(config_of(reward_model=reward_model), compute_score=function)


async def statuses(function: Callable[..., Any], texts: list[str], **reward_model: Any) -> list[str]:
    worker = worker_for(function, **reward_model)
    outcomes = await worker.score_rows(text_batch(texts))
    worker.close()
    return [outcome.status for outcome in outcomes]


class Concurrency:
    """Counts how many calls are under way at a time."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._now -= 1


async def test_every_row_of_a_large_batch_is_emitted_exactly_once() -> None:
    seen: Counter[int] = Counter()
    worker = worker_for(lambda solution_str: float(solution_str))
    outcomes: dict[int, Outcome] = {}

    def emit(row: int, outcome: Outcome) -> None:
        seen[row] += 1
        outcomes[row] = outcome

    await worker.score(text_batch([str(row) for row in range(1000)]), emit)
    assert seen == Counter(range(1000))
    assert all(outcome.reward is not None and outcome.reward.value == row for row, outcome in outcomes.items())


async def test_a_batch_without_rows_ends_at_once() -> None:
    assert await statuses(lambda solution_str: 1.0, []) == []


async def test_a_function_that_hangs_costs_only_its_sample() -> None:
    release = threading.Event()

    def hangs_on_b(solution_str: str) -> float:
        if solution_str == "b":
            release.wait(WAIT_S)
        return 1.0

    worker = worker_for(hangs_on_b, timeout_s=0.3, max_threads=1)
    emitted: list[tuple[int, str, str]] = []
    await worker.score(text_batch(["a", "b", "c", "d"]), lambda row, o: emitted.append((row, o.status, o.message)))
    assert [(row, status) for row, status, _ in sorted(emitted)] == [(0, "ok"), (1, "timeout"), (2, "ok"), (3, "ok")]
    assert sorted(emitted)[1][2] == "RewardTimeout: not scored within 0.3 s (reward_model.timeout_s)"
    release.set()  # what the late thread returns is dropped: its row has been emitted
    assert (await worker.score_rows(text_batch(["e"])))[0].status == "ok"
    assert len(emitted) == 4


async def test_all_samples_may_hang_and_threads_do_not_run_out() -> None:
    release = threading.Event()

    def hangs(solution_str: str) -> float:
        release.wait(WAIT_S)
        return 1.0

    assert await statuses(hangs, ["x"] * 6, timeout_s=0.2, max_threads=2) == ["timeout"] * 6
    release.set()


async def test_blocking_functions_run_side_by_side_up_to_max_threads() -> None:
    all_here = threading.Barrier(64, timeout=WAIT_S)  # lets nobody through before 64 calls wait at once

    def blocks(solution_str: str) -> float:
        all_here.wait()
        return 1.0

    assert await statuses(blocks, ["x"] * 64, max_threads=64) == ["ok"] * 64


async def test_no_more_than_max_threads_run_at_a_time() -> None:
    concurrency, three_here = Concurrency(), threading.Barrier(3, timeout=WAIT_S)

    def blocks(solution_str: str) -> float:
        with concurrency:
            three_here.wait()
        return 1.0

    assert await statuses(blocks, ["x"] * 9, max_threads=3) == ["ok"] * 9
    assert concurrency.most == 3


async def test_rows_are_emitted_while_a_slow_one_is_under_way() -> None:
    others_are_out, emitted = threading.Event(), list[int]()

    def slow_first(solution_str: str) -> float:
        return 1.0 if solution_str != "0" else float(others_are_out.wait(WAIT_S))

    def emit(row: int, outcome: Outcome) -> None:
        emitted.append(row)
        if len(emitted) == 299:
            others_are_out.set()

    await worker_for(slow_first).score(text_batch([str(row) for row in range(300)]), emit)
    assert emitted[-1] == 0
    assert sorted(emitted) == list(range(300))


async def test_an_awaitable_from_a_function_that_does_not_look_async_is_awaited() -> None:
    async def judge(text: str) -> float:
        await asyncio.sleep(0)
        return float(len(text))

    def returns_a_coroutine(solution_str: str) -> Awaitable[float]:
        return judge(solution_str)

    worker = worker_for(returns_a_coroutine)
    outcomes = await worker.score_rows(text_batch(["a", "bb", ""]))
    assert [o.reward.value if o.reward else o.status for o in outcomes] == [1.0, 2.0, "unscorable"]


async def test_an_awaitable_that_hangs_or_fails_costs_only_its_sample() -> None:
    async def judge(text: str) -> float:
        if text == "hangs":
            await asyncio.Event().wait()
        if text == "cancels":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return 1.0 / len(text.removeprefix("fails"))

    def returns_a_coroutine(solution_str: str) -> Awaitable[float]:
        return judge(solution_str)

    texts = ["fine", "hangs", "fails", "cancels", "fine"]
    assert await statuses(returns_a_coroutine, texts, timeout_s=0.2) == ["ok", "timeout", "error", "error", "ok"]


async def test_a_cancelled_run_stops_after_the_samples_that_are_under_way() -> None:
    began, release = asyncio.Event(), threading.Event()
    loop, calls, threads = asyncio.get_running_loop(), list[str](), list[threading.Thread]()

    def blocks(solution_str: str) -> float:
        calls.append(solution_str)
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(began.set)
        release.wait(WAIT_S)
        return 1.0

    worker = worker_for(blocks, max_threads=1)
    run = asyncio.create_task(worker.score_rows(text_batch(["x"] * 500)))
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    release.set()
    threads[0].join(WAIT_S)
    assert not threads[0].is_alive()
    assert len(calls) == 1


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt(), StopIteration()])
async def test_whatever_a_function_raises_is_one_samples_error(error: BaseException) -> None:
    def raises_on_b(solution_str: str) -> float:
        if solution_str == "b":
            raise error
        return 1.0

    assert await statuses(raises_on_b, ["a", "b", "c"]) == ["ok", "error", "ok"]


async def test_sys_exit_is_reported_with_the_line_that_called_it() -> None:
    def exits(solution_str: str) -> float:
        sys.exit(3)

    [outcome] = await worker_for(exits).score_rows(text_batch(["a"]))
    assert outcome.message.startswith(f"SystemExit: 3 ({__file__}:")


async def test_token_ids_that_nobody_can_decode_cost_only_their_row(tokenizer_path: str) -> None:
    config = config_of(actor_rollout_ref={"model": {"path": tokenizer_path}})
    worker = RewardLoopWorker(config, compute_score=lambda solution_str: 1.0)
    data = DataProto.from_dict(tensors={"responses": torch.tensor([[5, 6], [5, -1], [7, 8]])})
    outcomes = await worker.score_rows(data)
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].message.startswith("DataError: -1 is no token id")

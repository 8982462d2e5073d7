"""What judges cost is added up where somebody asks for it, whoever spends it."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
from pydantic import ValidationError

from reward_loop.rubrics.judges.usage import JudgeUsage, Prices, record, usage_recorded


def test_prices_are_per_million_tokens() -> None:
    assert Prices(prompt=3e3, completion=15e3).usage(1000, 200) == JudgeUsage(1, 1000, 200, 6.0)
    assert Prices().usage(1000, 200).cost == 0.0


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf"), "free"])
def test_a_price_is_a_number_that_is_not_negative(price: object) -> None:
    with pytest.raises(ValidationError):
        Prices.model_validate({"prompt": price})


def test_a_ledger_sums_up_by_judge_and_in_all() -> None:
    with usage_recorded() as ledger:
        record("style", JudgeUsage(1, 10, 2, 0.5))
        record("safety", JudgeUsage(1, 20, 3, 0.25))
        record("style", JudgeUsage(1, 10, 2, 0.5))
    record("style", JudgeUsage(1, 999, 999))
    assert ledger.total == JudgeUsage(3, 40, 7, 1.25)
    assert ledger.by_judge == {"style": JudgeUsage(2, 20, 4, 1.0), "safety": JudgeUsage(1, 20, 3, 0.25)}
    assert ledger.total.as_columns() == {
        "judge_calls": 3,
        "judge_prompt_tokens": 40,
        "judge_completion_tokens": 7,
        "judge_cost": 1.25,
    }


def test_a_ledger_within_another_adds_to_both() -> None:
    with usage_recorded() as outer:
        with usage_recorded() as inner:
            record("a", JudgeUsage(1))
        record("a", JudgeUsage(1))
    assert (inner.total.calls, outer.total.calls) == (1, 2)


async def test_tasks_of_different_samples_keep_their_own_ledgers() -> None:
    async def sample(calls: int) -> int:
        with usage_recorded() as ledger:
            for _ in range(calls):
                record("a", JudgeUsage(1))
                await asyncio.sleep(0)
            return ledger.total.calls

    async with asyncio.TaskGroup() as samples:
        tasks = [samples.create_task(sample(calls)) for calls in range(5)]
    assert [task.result() for task in tasks] == [0, 1, 2, 3, 4]


def test_threads_add_to_the_ledger_of_the_context_they_were_given() -> None:
    def spend() -> None:
        for _ in range(1000):
            record("a", JudgeUsage(1))

    with usage_recorded() as ledger:
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(spend,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ledger.total.calls == 4000

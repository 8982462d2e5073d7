"""Scoring within a limit: waiting for its turn, reporting what was used, coming back after a 429."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reward_loop.config import RateLimitConfig
from reward_loop.data import DataProto
from reward_loop.errors import ConfigError, ServerUnavailable, TooManyRequests
from reward_loop.limits.current import current_reservation
from reward_loop.limits.gate import Clock
from reward_loop.limits.local import LocalLimiter
from reward_loop.limits.reservation import Limiter, Reservation
from reward_loop.managers.deadline import with_deadline
from reward_loop.managers.rate_limit import with_rate_limit
from reward_loop.outcome import Reward
from reward_loop.scoring.chat import chat_complete
from tests.fakes import text_batch
from tests.limits.booked import Booked
from tests.scoring.service import completion, service

Results = Sequence[Reward | Exception]


class Books:
    """A limiter that lets everyone through and keeps what it is told, per reservation."""

    def __init__(self) -> None:
        self.entries: list[Booked] = []
        self.held = 0

    @asynccontextmanager
    async def reserve(self, tokens: int | None = None) -> AsyncGenerator[Reservation]:
        self.held += 1
        self.entries.append(Booked())
        try:
            yield self.entries[-1]
        finally:
            self.held -= 1

    async def close(self) -> None:
        return


class Scoring:
    """A scorer that gives these results in turn, raising those that are exceptions."""

    def __init__(self, *results: Results | Exception) -> None:
        self.results = list(results)
        self.calls = 0

    async def __call__(self, data: DataProto) -> Results:
        self.calls += 1
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


async def scored(scoring: Any, limiter: Limiter, attempts: int = 10) -> Results:
    return await with_rate_limit(scoring, limiter, attempts)(text_batch(["a"]))


OK = [Reward(1.0)]


async def test_each_unit_takes_one_reservation_and_gives_it_back() -> None:
    books = Books()
    assert await scored(Scoring(OK), books) == OK
    assert (len(books.entries), books.held) == (1, 0)


async def test_what_is_scored_sees_its_reservation_and_others_do_not() -> None:
    seen: list[Reservation | None] = []

    async def look(data: DataProto) -> Results:
        seen.append(current_reservation())
        return OK

    books = Books()
    await asyncio.gather(scored(look, books), scored(look, books))
    assert None not in seen
    assert seen[0] is not seen[1]
    assert current_reservation() is None


# -- tokens ----------------------------------------------------------------------------------------------------------


async def test_what_clients_report_is_added_up() -> None:
    async def two_requests(data: DataProto) -> Results:
        for tokens in (30, 12):
            reservation = current_reservation()
            assert reservation is not None
            reservation.used(tokens)
        return [Reward(1.0, {"usage": {"total_tokens": 5}})]

    books = Books()
    await scored(two_requests, books)
    assert books.entries[0].tokens == [30, 42]


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"total_tokens": 30, "prompt_tokens": 1}, [30]),
        ({"prompt_tokens": 20, "completion_tokens": 5}, [25]),
        ({"prompt_tokens": 20}, [20]),
        ({"total_tokens": "30"}, []),
        ({"total_tokens": -30}, []),
        ({}, []),
        (30, []),
        (None, []),
    ],
)
async def test_without_a_report_the_extra_info_tells(usage: object, tokens: list[int]) -> None:
    books = Books()
    await scored(Scoring([Reward(1.0, {"usage": usage})]), books)
    assert books.entries[0].tokens == tokens


async def test_the_usage_of_all_rows_of_a_unit_is_added_up() -> None:
    books = Books()
    rows: Results = [Reward(1.0, {"usage": {"total_tokens": 3}}), ValueError("no"), Reward(0.0, {"usage": {"total_tokens": 4}})]
    assert await scored(Scoring(rows), books) == rows
    assert books.entries[0].tokens == [7]


# -- 429 -------------------------------------------------------------------------------------------------------------


class HttpError(Exception):
    """A client's error."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers or {}


async def test_a_429_of_any_client_halts_everyone_and_the_unit_goes_again() -> None:
    books, scoring = (
        Books(),
        Scoring(TooManyRequests("wait", retry_after_s=2.0), HttpError(429, {"Retry-After": "7"}), HttpError(429), OK),
    )
    assert await scored(scoring, books) == OK
    assert [entry.waits for entry in books.entries] == [[2.0], [7.0], [None], []]


async def test_a_429_that_its_client_has_reported_is_reported_once() -> None:
    async def reports_and_raises(data: DataProto) -> Results:
        reservation = current_reservation()
        assert reservation is not None
        reservation.throttled(3.0)
        raise TooManyRequests("wait", retry_after_s=3.0)

    books = Books()
    with pytest.raises(TooManyRequests):
        await scored(reports_and_raises, books, attempts=2)
    assert [entry.waits for entry in books.entries] == [[3.0], [3.0]]


async def test_a_429_without_end_is_an_error_that_says_what_to_change() -> None:
    books, scoring = Books(), Scoring(*[TooManyRequests("judge answered 429: quota", "quota", 9.0)] * 3)
    with pytest.raises(TooManyRequests, match=r"quota; so it answered each of 3 attempts: lower .*max_rpm") as raised:
        await scored(scoring, books, attempts=3)
    assert (scoring.calls, books.held) == (3, 0)
    assert (raised.value.body, raised.value.retry_after_s) == ("quota", 9.0)


async def test_a_429_of_one_row_halts_everyone_and_costs_that_row() -> None:
    books = Books()
    rows: Results = [Reward(1.0), HttpError(429, {"Retry-After": "5"})]
    assert await scored(Scoring(rows), books) == rows
    assert [entry.waits for entry in books.entries] == [[5.0]]


@pytest.mark.parametrize("error", [HttpError(503), ServerUnavailable("down"), ValueError("429")])
async def test_other_errors_pass_through(error: Exception) -> None:
    books, scoring = Books(), Scoring(error)
    with pytest.raises(type(error)) as raised:
        await scored(scoring, books)
    assert raised.value is error
    assert (scoring.calls, books.held, books.entries[0].waits) == (1, 0, [])


async def test_attempts_that_can_not_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"attempts=0\): it must be at least 1"):
        await scored(Scoring(OK), Books(), attempts=0)


# -- with a limit and a service --------------------------------------------------------------------------------------


async def test_neither_the_turn_nor_the_halt_counts_towards_the_deadline() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_concurrent=1), Clock(speed=10.0))
    scoring = Scoring(HttpError(429, {"Retry-After": "5"}), OK)
    async with limiter.reserve():
        waiting = asyncio.ensure_future(with_deadline(with_rate_limit(scoring, limiter), 0.3)(text_batch(["a"])))
        await asyncio.wait([waiting], timeout=0.4)
        assert not waiting.done()
    assert await waiting == OK


async def test_a_judge_that_is_asked_too_often_is_asked_again_later() -> None:
    clock = Clock(speed=20.0)
    limiter = LocalLimiter(RateLimitConfig(max_tpm=60_000), clock)
    answers = [(429, {"Retry-After": "10"}, "slow down"), completion("yes", {"total_tokens": 2_500})]
    async with service(*answers) as judge:

        async def ask(data: DataProto) -> Results:
            reply = await chat_complete([], model="judge", base_url=judge.base_url, api_key_env=None)
            return [Reward(float(reply.text == "yes"))]

        began = clock.now()
        assert await scored(ask, limiter) == OK
        assert clock.now() - began >= 9.9
        assert len(judge.asked) == 2

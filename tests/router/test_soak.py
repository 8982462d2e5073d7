"""Servers that die, hang, leave and come while clients work: every request gets its one right answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from time import monotonic
from typing import Any

import aiohttp
import pytest

from reward_loop.router.process import RouterProcess
from reward_loop.router.settings import RouterSettings
from tests.router.patience import until
from tests.router.scorers import Scorer, score_of

SETTINGS = RouterSettings(
    health_interval_s=0.2, health_timeout_s=1.0, attempt_timeout_s=5.0, total_timeout_s=60.0, drain_timeout_s=5.0
)

Score = Callable[[int], Awaitable[float]]


@pytest.fixture
def servers() -> Any:
    """Start any number of servers, which end with the test."""
    with ExitStack() as stack:
        yield lambda count, delay_s=0.002: [stack.enter_context(Scorer(delay_s)) for _ in range(count)]


@asynccontextmanager
async def routed(scorers: Sequence[Scorer], settings: RouterSettings = SETTINGS) -> AsyncGenerator[tuple[RouterProcess, Score]]:
    """A router in front of servers, and a client that asks it about sample `index`: any error of HTTP is its error."""
    async with (
        RouterProcess(settings) as router,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), raise_for_status=True) as session,
    ):

        async def score(index: int) -> float:
            question = {"model": "rm", "input": f"sample {index}"}
            async with session.post(f"http://{router.address}/score", json=question) as reply:
                answer = await reply.json()
                return float(answer["data"][0]["score"])

        for scorer in scorers:
            await router.add("rm", scorer.url)
        yield router, score


class Batch:
    """Scores samples with `clients` at a time: `least` of them, and on until all of a plan has happened to the servers."""

    def __init__(self, score: Score, least: int, clients: int) -> None:
        self._score = score
        self._least = least
        self._clients = clients
        self._next = count()
        self._going_on = True
        self.scores: dict[int, float] = {}
        self._progress = asyncio.Condition()

    async def run(self, plan: Callable[[Batch], Awaitable[None]]) -> None:
        async with asyncio.timeout(120.0), asyncio.TaskGroup() as tasks:
            for _ in range(self._clients):
                tasks.create_task(self._client())
            await plan(self)
            self._going_on = False
        assert len(self.scores) >= self._least
        assert self.scores == {index: score_of(f"sample {index}") for index in range(len(self.scores))}

    async def done(self, share: float) -> None:
        """Wait until this share of the least number of samples has its score."""
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.scores) >= share * self._least)

    async def _client(self) -> None:
        while self._going_on or len(self.scores) < self._least:
            index = next(self._next)
            score = await self._score(index)
            assert index not in self.scores, "answered twice"
            self.scores[index] = score
            async with self._progress:
                self._progress.notify_all()


async def seen(router: RouterProcess, scorer: Scorer) -> dict[str, Any]:
    """What the router says of a server."""
    [found] = [one for one in (await router.snapshot())["replicas"] if one["url"] == scorer.url]
    return found  # type: ignore[no-any-return]


async def until_it_is(router: RouterProcess, scorer: Scorer, state: str) -> None:
    async def is_it() -> bool:
        return bool((await seen(router, scorer))["state"] == state)

    await until(is_it)


async def until_it_serves_again(router: RouterProcess, scorer: Scorer) -> None:
    """Wait until a server has answered more requests than by now."""
    before = (await seen(router, scorer))["outcomes"]["ok"]

    async def has_more() -> bool:
        return bool((await seen(router, scorer))["outcomes"]["ok"] > before)

    await until(has_more)


async def error_of(router: RouterProcess) -> tuple[str, str]:
    """Ask when no server is left; return type and message of the error that the router answers soon."""
    began = monotonic()
    async with aiohttp.ClientSession() as session, session.post(f"http://{router.address}/score", json={}) as reply:
        error = (await reply.json())["error"]
        assert (reply.status >= 500, reply.headers["X-Reward-Router"]) == (True, error["type"])
    assert monotonic() - began < 10.0
    return error["type"], error["message"]


async def until_all_are_missed(router: RouterProcess, *scorers: Scorer) -> None:
    """Wait until no server is left for the router; from then on its error names all, and what is wrong with each."""
    for scorer in scorers:
        await until_it_is(router, scorer, "ejected")
    kind, message = await error_of(router)
    assert kind == "no_replica"
    assert all(f"{scorer.url} is ejected (" in message for scorer in scorers)


async def test_ten_thousand_requests_survive_whatever_happens_to_the_servers(servers: Any) -> None:
    killed, hung, drained, new = scorers = servers(4)

    async with routed(scorers[:3]) as (router, score):

        async def plan(batch: Batch) -> None:
            await batch.done(0.1)
            killed.kill()
            await batch.done(0.2)
            hung.pause()
            await router.add("rm", new.url)
            await until_it_is(router, new, "active")
            await router.drain(drained.url)
            assert (await seen(router, drained))["in_flight"] == 0
            drained.kill()
            await router.remove(drained.url)
            await batch.done(0.4)
            killed.start()
            await until_it_serves_again(router, killed)
            await batch.done(0.6)
            hung.resume()
            await until_it_serves_again(router, hung)

        await Batch(score, least=10_000, clients=64).run(plan)

        for scorer in (killed, hung, new):
            scorer.kill()
        assert (await error_of(router))[0] in ("upstream_failed", "no_replica")
        await until_all_are_missed(router, killed, hung, new)


async def test_with_all_servers_gone_the_error_names_them_and_what_is_wrong_with_each(servers: Any) -> None:
    scorers = servers(2)
    async with routed(scorers) as (router, score):
        assert await score(1) == score_of("sample 1")
        for scorer in scorers:
            scorer.kill()
        await until_all_are_missed(router, *scorers)


async def test_a_server_that_is_killed_costs_no_request_and_is_used_again_when_it_is_back(servers: Any) -> None:
    scorers = servers(3)
    async with routed(scorers) as (router, score):

        async def plan(batch: Batch) -> None:
            await batch.done(0.25)
            scorers[0].kill()
            await batch.done(0.5)
            scorers[0].start()
            began = monotonic()
            await until_it_serves_again(router, scorers[0])
            assert monotonic() - began < 5.0

        await Batch(score, least=2_000, clients=32).run(plan)


async def test_a_server_that_hangs_costs_no_request_and_those_stuck_in_it_go_elsewhere(servers: Any) -> None:
    scorers = servers(3)
    async with routed(scorers) as (router, score):

        async def nothing_is_stuck() -> bool:
            return not (await seen(router, scorers[0]))["in_flight"]

        async def plan(batch: Batch) -> None:
            await batch.done(0.25)
            scorers[0].pause()
            await until_it_is(router, scorers[0], "ejected")
            await until(nothing_is_stuck, wait_s=10.0)
            scorers[0].resume()

        await Batch(score, least=2_000, clients=32).run(plan)


async def test_a_server_that_is_down_at_the_start_costs_no_request_and_is_used_when_it_comes(servers: Any) -> None:
    scorers = servers(3)
    scorers[0].kill()
    async with routed(scorers) as (router, score):

        async def plan(batch: Batch) -> None:
            await batch.done(0.25)
            scorers[0].start()
            await until_it_serves_again(router, scorers[0])

        await Batch(score, least=2_000, clients=32).run(plan)

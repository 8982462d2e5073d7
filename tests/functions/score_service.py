"""A reward server on loopback that scores token ids by a rule that tests can repeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from math import sin
from typing import Any

from aiohttp import web

Rule = Callable[[Sequence[int]], Any]


def last(ids: Sequence[int]) -> float:
    """One score, which depends on every token and its place."""
    return sin(sum(place * token for place, token in enumerate(ids, 1)))


def labels(ids: Sequence[int]) -> list[float]:
    """A score for each of three labels."""
    return [last(ids), last(ids) - 1.0, 2.0 * last(ids)]


def at(tag: int) -> Rule:
    """Two labels' scores at each step tag, which depend on every token before it."""
    return lambda ids: [[-last(ids[:place]), last(ids[:place])] for place, token in enumerate(ids) if token == tag]


class ScoreService:
    """Scores by the rule of the model that is asked for, refuses token 13, and keeps what it was asked."""

    def __init__(self, rules: dict[str, Rule]) -> None:
        self.rules = rules
        self.asked: list[dict[str, Any]] = []
        self.address = ""
        self.versions: dict[str, int] = {}  # of the weights of models that tell it
        self.held: set[str] = set()  # models that answer only once another hangs
        self.hung = asyncio.Event()
        self.hung_up = asyncio.Event()

    async def score(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        rule = self.rules[body["model"]]
        bad = next((index for index, ids in enumerate(body["input"]) if 13 in ids), None)
        if bad is not None:
            error = {"message": "token 13 is out of the vocabulary", "type": "BadRequest", "code": 400, "index": bad}
            return web.json_response({"error": error}, status=400)
        if body["model"] in self.held:
            await self.hung.wait()
        data = [{"index": index, "score": await self._value(rule, ids)} for index, ids in enumerate(body["input"])]
        version = self.versions.get(body["model"])
        headers = {} if version is None else {"X-Reward-Model-Version": str(version)}
        reply = {"model": body["model"], "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        return web.json_response(reply, headers=headers)

    async def _value(self, rule: Rule, ids: Sequence[int]) -> Any:
        if rule is not hangs:
            return rule(ids)
        self.hung.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.hung_up.set()


def hangs(ids: Sequence[int]) -> Any:
    """Never answers."""
    raise AssertionError(ids)


@asynccontextmanager
async def score_service(**rules: Rule) -> AsyncGenerator[ScoreService]:
    """A service of models with these rules."""
    served = ScoreService(rules)
    app = web.Application()
    app.router.add_post("/score", served.score)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        served.address = f"127.0.0.1:{runner.addresses[0][1]}"
        yield served
    finally:
        await runner.cleanup()

"""A service on loopback, chat completions or scores, that answers as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = tuple[int, Mapping[str, str], str]
"""Status, headers and body."""

Reaction = Callable[[dict[str, Any]], Answer]
"""What is answered to a body."""

HANG: Answer = (0, {}, "hang")
HANG_UP: Answer = (0, {}, "hang up")
HANG_UP_MIDWAY: Answer = (0, {}, "hang up midway")


def completion(text: str | None = "yes", usage: object = None, **more: Any) -> Answer:
    """A chat completion with this text."""
    return completions([text], usage, **more)


def completions(texts: Sequence[str | None], usage: object = None, finish_reason: str = "stop", **more: Any) -> Answer:
    """A chat completion with several choices."""
    choices = [
        {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
        for index, text in enumerate(texts)
    ]
    body = {"object": "chat.completion", "model": "judge-1", "choices": choices, **more}
    return 200, {}, json.dumps(body if usage is None else {**body, "usage": usage})


def scores(*values: object, **more: Any) -> Answer:
    """The reply of a reward server with these scores."""
    data = [{"index": index, "score": value} for index, value in enumerate(values)]
    return 200, {}, json.dumps({"model": "rm", "data": data, "usage": {"prompt_tokens": 3, "total_tokens": 3}, **more})


def lengths(body: dict[str, Any]) -> Answer:
    """Score each input with its length."""
    return scores(*(float(len(each)) for each in body["input"]))


class Service:
    """Gives its answers in turn, the last for ever, and keeps what it was asked."""

    def __init__(self, answers: Sequence[Answer | Reaction]) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.connections: set[object] = set()
        self.base_url = ""
        self.was_asked = asyncio.Event()
        self.closing = asyncio.Event()
        self.open = asyncio.Event()
        """Cleared by a test that wants requests to wait."""
        self.open.set()
        self.in_flight = 0
        self.most_in_flight = 0

    @property
    def address(self) -> str:
        """Its "host:port"."""
        return self.base_url.removeprefix("http://")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        self.headers.append(request.headers)
        asked: dict[str, Any] = await request.json() if request.can_read_body else {}
        self.asked.append(asked)
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        self.was_asked.set()
        try:
            await self.open.wait()
            given = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            return await self._answered(request, given(asked) if callable(given) else given)
        finally:
            self.in_flight -= 1

    async def _answered(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        status, headers, body = answer
        if status:
            return web.Response(status=status, headers=headers, text=body)
        if body == "hang":
            await self.closing.wait()
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        if body == "hang up midway":
            await response.prepare(request)
            await response.write(b'{"choices":')
        if request.transport is not None:
            request.transport.abort()
        return response


@asynccontextmanager
async def service(*answers: Answer | Reaction, port: int = 0) -> AsyncGenerator[Service]:
    """Serve these answers at any path, at a free port or at `port`."""
    served = Service(answers)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    # A client that hangs up ends its request, as in vLLM.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        served.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield served
    finally:
        served.closing.set()
        served.open.set()
        await runner.cleanup()

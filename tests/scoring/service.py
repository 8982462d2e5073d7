"""An OpenAI-compatible service on loopback that answers as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = tuple[int, Mapping[str, str], str]
"""Status, headers and body."""

HANG: Answer = (0, {}, "hang")
HANG_UP: Answer = (0, {}, "hang up")
HANG_UP_MIDWAY: Answer = (0, {}, "hang up midway")


def completion(text: str | None = "yes", usage: object = None, **more: Any) -> Answer:
    """A chat completion with this text."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"object": "chat.completion", "model": "judge-1", "choices": [choice], **more}
    return 200, {}, json.dumps(body if usage is None else {**body, "usage": usage})


class Service:
    """Gives its answers in turn, the last for ever, and keeps what it was asked."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.connections: set[object] = set()
        self.base_url = ""
        self.was_asked = asyncio.Event()
        self.closing = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        self.headers.append(request.headers)
        self.asked.append(await request.json())
        self.was_asked.set()
        status, headers, body = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
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
async def service(*answers: Answer) -> AsyncGenerator[Service]:
    served = Service(answers)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", served.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        served.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield served
    finally:
        served.closing.set()
        await runner.cleanup()

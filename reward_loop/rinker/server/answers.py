"""How results are sent: at once, as a promise, or not yet.

A client that sends `Prefer: wait=SECONDS` (RFC 7240) with a request gets the result itself where it comes in time, and saves a
round trip; others, and where it does not come in time, get the promise's id, to ask for it by /retrieve_future.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from aiohttp import web

from reward_loop.rinker.server.hub import Hub
from reward_loop.rinker.server.promise import JSON, Promise, Reply
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.wire.compression import ENCODING, compressed
from reward_loop.rinker.wire.frames import FRAMES, FrameHead, frame
from reward_loop.rinker.wire.replies import json_bytes

REQUEST_ID = "X-Request-Id"
"""The header that names the promise of a result that is sent at once."""

_WAIT = re.compile(r"\bwait=([0-9]{1,4})\b")
_WORTH_BYTES = 1 << 14


def say(fields: Mapping[str, object], http_status: int = 200) -> web.Response:
    """Answer in JSON."""
    return web.Response(status=http_status, body=json_bytes(fields), content_type=JSON)


async def promised(hub: Hub, request: web.Request, promise: Promise, **fields: object) -> web.Response:
    """Answer a request that was taken: with its result, or with the promise of it and `fields`."""
    wait = _WAIT.search(request.headers.get("Prefer", ""))
    if wait is not None:
        reply = await hub.settled(promise, min(float(wait[1]), hub.settings.poll_s))
        if reply is not None:
            return sent(hub, request, promise, reply)
    return say({"request_id": promise.id, **fields})


async def retrieved(hub: Hub, request: web.Request, promise: Promise, *, size_will_do: bool) -> web.Response:
    """Answer a request for a result: with the result, its size if that will do and it is large, or 408 where it has not come."""
    reply = await hub.settled(promise, hub.settings.poll_s)
    if reply is None:
        if hub.stopping:
            raise Refusal(503, "the server is being stopped", retry_after_s=1)
        return say({"type": "try_again", "request_id": promise.id, "queue_state": "active"}, 408)
    if size_will_do and len(reply.body) > hub.settings.inline_result_mb << 20:
        return say({"status": "complete_metadata", "response_payload_size": len(reply.body)})
    return sent(hub, request, promise, reply)


async def streamed(hub: Hub, request: web.Request, promises: Mapping[int, Promise]) -> web.StreamResponse:
    """Answer with results by their indices, each as it comes; what has not come in time is left out."""
    response = web.StreamResponse(headers={"Content-Type": FRAMES})
    await response.prepare(request)

    async def send(index: int, promise: Promise) -> None:
        reply = await hub.settled(promise, hub.settings.poll_s)
        if reply is not None:
            head = FrameHead(index=index, request_id=promise.id, content_type=reply.content_type, size=len(reply.body))
            await response.write(frame(head, reply.body))
            hub.promises.fetched(promise, hub.now())

    try:
        async with asyncio.TaskGroup() as tasks:
            for index, promise in promises.items():
                tasks.create_task(send(index, promise))
    except* ConnectionError:
        pass  # the client is gone; what was not sent is kept, should it ask again
    return response


def sent(hub: Hub, request: web.Request, promise: Promise, reply: Reply) -> web.Response:
    """Answer with a result."""
    hub.promises.fetched(promise, hub.now())
    headers = {REQUEST_ID: promise.id}
    body = reply.body
    accepted = request.headers.get("Accept-Encoding", "")
    if hub.settings.compress and ENCODING in accepted and len(body) >= _WORTH_BYTES:
        body = compressed(body)
        headers["Content-Encoding"] = ENCODING
    return web.Response(body=body, content_type=reply.content_type, headers=headers)

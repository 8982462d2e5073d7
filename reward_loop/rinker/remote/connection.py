"""A session with a server: begun when it is first needed, kept alive, and finished.

Invariant: what goes on in the background lives in one task, which `close` ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any

from reward_loop.errors import DataError, RequestFailedError, TrainingError
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.remote.transport import Answer, Transport, asked_by_the_user, unreadable
from reward_loop.rinker.wire.body import Body
from reward_loop.rinker.wire.replies import json_bytes

logger = logging.getLogger(__name__)

REQUEST_ID = "X-Request-Id"


class Connection:
    """Sends requests in a session, and waits for what they were promised."""

    def __init__(self, transport: Transport, settings: HttpSettings) -> None:
        self._transport = transport
        self._settings = settings
        self._opening = asyncio.Lock()
        self._session_id: str | None = None
        self._life: asyncio.Task[None] | None = None
        self._background: asyncio.TaskGroup | None = None
        self._closed = False
        self.compress = False

    async def session_id(self) -> str:
        """Return the id of the session, which is begun if it is not. Raises as `Transport.post` does."""
        async with self._opening:
            if self._session_id is None:
                config = await self._json("/client/config", {"sdk_version": "rinker"})
                wanted = self._settings.compress
                self.compress = config.get("proto_compress_fwdbwd") is True if wanted is None else wanted
                opened = await self._json("/create_session", {"tags": ["rinker"], "sdk_version": "rinker"})
                self._session_id = text_of(opened, "session_id")
                self._life = asyncio.create_task(self._live(self._session_id))
            return self._session_id

    async def ask(self, path: str, body: Body) -> Mapping[str, Any]:
        """Return what is said at once. Raises as `Transport.post` does."""
        return fields_of(await self.answer(path, body))

    async def answer(self, path: str, body: Body) -> Answer:
        """`ask`, as it came."""
        return await self._post(path, _written(body))

    async def get(self, path: str) -> Answer:
        """Return what is there."""
        return await self._transport.get(path)

    async def delete(self, path: str) -> None:
        """Have what is there removed; it is no error where nothing is."""
        await self._transport.delete(path)

    async def result(self, path: str, body: Body) -> Answer:
        """Return what is promised to a request in JSON, once it has come. Raises RequestFailedError where that is an error."""
        return await self.result_of(path, _written(body), {})

    async def result_of(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """`result` for any body."""
        wait = {"Prefer": f"wait={int(self._settings.wait_s)}"} if self._settings.wait_s >= 1 else {}
        answer = await self._post(path, body, {**headers, **wait})
        if REQUEST_ID not in answer.headers:
            answer = await self._retrieved(text_of(fields_of(answer), "request_id"))
        return checked(answer)

    async def results(self, path: str, body: Body) -> AsyncGenerator[tuple[int, Answer]]:
        """Give the results of an answer that has several, with their indices; see `Transport.results`."""
        async for head, raw in self._transport.results(path, _written(body)):
            yield head.index, Answer(200, {REQUEST_ID: head.request_id, "Content-Type": head.content_type}, raw)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Do something beside, for which nobody waits; None where there is no session (any more), and nothing is done."""
        if self._background is None:
            work.close()
            return None
        return self._background.create_task(work)

    async def tell(self, path: str, fields: Mapping[str, Any]) -> None:
        """Say something whose answer is no matter, once, within a few seconds."""
        try:
            async with asyncio.timeout(self._settings.farewell_s):
                await self._transport.post(path, json_bytes(fields))
        except (TrainingError, TimeoutError) as error:
            logger.debug("path=%s was not heard: %s", path, error)

    async def close(self) -> None:
        """Finish the session."""
        if self._closed:
            return
        self._closed = True
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
        if self._session_id is not None:
            await self.tell(f"/sessions/{self._session_id}/finish", {"reason": {"type": "success"}})
        await self._transport.close()

    async def _retrieved(self, request_id: str) -> Answer:
        body = json_bytes({"request_id": request_id})
        while True:
            answer = await self._post("/retrieve_future", body, may_be_pending=True)
            if answer.status == 200:
                return answer

    async def _post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None, *, may_be_pending: bool = False
    ) -> Answer:
        """`Transport.post`, which tells a request that is wrong from one whose session the server has lost ("server")."""
        try:
            return await self._transport.post(path, body, headers, may_be_pending=may_be_pending)
        except RequestFailedError as error:
            if error.category == "user" and (reason := await self._lost()) is not None:
                raise RequestFailedError(f"{path}: the session is lost: {reason}", category="server") from error
            raise

    async def _lost(self) -> str | None:
        """Return why the server does not know the session any more; None where it does."""
        if self._session_id is None:
            return None
        try:
            await self._transport.post("/session_heartbeat", json_bytes({"session_id": self._session_id}))
        except RequestFailedError as error:
            return error.message
        return None

    async def _json(self, path: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return fields_of(await self._transport.post(path, json_bytes(fields)))

    async def _live(self, session_id: str) -> None:
        async with asyncio.TaskGroup() as group:
            self._background = group
            try:
                await self._keep_alive(session_id)
            finally:
                self._background = None

    async def _keep_alive(self, session_id: str) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_s)
            await self.tell("/session_heartbeat", {"session_id": session_id})


def _written(body: Body) -> bytes:
    with asked_by_the_user():
        return json_bytes(body.to_json())


def checked(answer: Answer) -> Answer:
    """Return a result. Raises RequestFailedError where it is an error."""
    if answer.headers.get("Content-Type", "").startswith("application/json"):
        fields = fields_of(answer)
        if "error" in fields:
            raise RequestFailedError(str(fields["error"]), category=str(fields.get("category", "unknown")))
    return answer


def fields_of(answer: Answer) -> Mapping[str, Any]:
    """Return what an answer in JSON says. Raises RequestFailedError("server") for one that says nothing."""
    try:
        fields = json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise unreadable(DataError(str(error))) from None
    if not isinstance(fields, dict):
        raise unreadable(DataError(f"it is a {type(fields).__name__} and no object"))
    return fields


def text_of(fields: Mapping[str, Any], name: str) -> str:
    """Return one text of it. Raises RequestFailedError("server") where it is missing."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise unreadable(DataError(f"it has no {name}"))
    return value

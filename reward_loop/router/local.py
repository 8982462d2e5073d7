"""Requests that the router answers itself: those it refuses, and those for /admin and /metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from reward_loop.router.wire import ErrorType

if TYPE_CHECKING:
    from reward_loop.router.downstream import Downstream

logger = logging.getLogger(__name__)


class Refusal:
    """Answers with an error."""

    def __init__(self, client: Downstream, kind: ErrorType, status: int, message: str) -> None:
        self._client = client
        self._error: tuple[ErrorType, int, str] = kind, status, message

    def start(self) -> None:
        """Answer."""
        self._client.refuse(*self._error)

    def cancel(self) -> None:
        """Nothing goes on."""

    def pause(self) -> None:
        """Nothing is sent in pieces."""

    def resume(self) -> None:
        """Nothing is sent in pieces."""

    def check(self, now: float) -> None:
        """Nothing takes time."""


class ControlCall(Refusal):
    """Answers with what the control says, which may take as long as it likes."""

    def __init__(
        self, client: Downstream, tasks: asyncio.TaskGroup, said: Awaitable[tuple[int, Mapping[str, str], bytes]]
    ) -> None:
        super().__init__(client, "internal", 500, "the router's control failed; its log says how")
        self._tasks = tasks
        self._said = said
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Ask the control."""
        self._task = self._tasks.create_task(self._answer())

    def cancel(self) -> None:
        """Stop waiting: the client is gone."""
        if self._task is not None:
            self._task.cancel()

    async def _answer(self) -> None:
        try:
            status, headers, body = await self._said
        except Exception:  # a fault of the control must not end the router, whose task group this runs in
            logger.exception("the control failed")
            super().start()
        else:
            self._client.answer(status, dict(headers), body)

"""Calls of `sample` that are made in the same moment travel in one request: a loop over prompts makes many."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence

from reward_loop.errors import TrainingError
from reward_loop.rinker.remote.connection import Connection
from reward_loop.rinker.remote.transport import Answer
from reward_loop.rinker.wire.sample_body import Sample, SampleMany

logger = logging.getLogger(__name__)

_MOMENT_S = 0.0005
"""Seconds for which the first waits for others; to draw a token takes longer."""
_MOST = 64
"""Calls in one request."""

_Waiting = tuple[Sample, "asyncio.Future[Answer | None]"]


class SamplesTogether:
    """Of one event loop. Invariant: whoever asks here gets an answer, or is told to ask alone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: list[_Waiting] = []

    async def result(self, body: Sample) -> Answer | None:
        """Return what is answered; None: make the request by itself."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(_MOMENT_S, self._send)
        future: asyncio.Future[Answer | None] = loop.create_future()
        self._waiting.append((body, future))
        return await future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _MOST):
            part = waiting[start : start + _MOST]
            asking = None if len(part) == 1 else self._connection.begin(self._ask(part))
            if asking is None:
                _send_back(part)
            else:
                asking.add_done_callback(functools.partial(_send_back, part))

    async def _ask(self, part: Sequence[_Waiting]) -> None:
        try:
            together = SampleMany.made(samples=[body for body, _ in part])
            async for index, answer in self._connection.results("/asample_many", together):
                if index < len(part) and not part[index][1].done():
                    part[index][1].set_result(answer)
        except TrainingError as error:
            logger.debug("%s calls are made one by one: %s", len(part), error)


def _send_back(part: Sequence[_Waiting], _: object = None) -> None:
    for _, future in part:
        if not future.done():
            future.set_result(None)

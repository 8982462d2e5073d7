"""What an update of the weights asks of vLLM's engine, and its answers.

Invariants: one command at a time, in the order in which they were given; a failure is EngineFailed, also where the engine died
before it could answer. This module imports nothing of vLLM: its requests' types are passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, Protocol

from reward_loop.serving.inside.reply import Refusal

_LOOK_S = 0.5
_DEAD = "the engine is dead, so the server ends; started again, it has the weights that were committed last"
_MESSAGE = 2000
"""Characters of the engine's own words that are passed on."""


class EngineFailed(Exception):
    """The engine did not do as it was told; its words."""


class EngineClient(Protocol):
    """The part of vLLM's `EngineClient` that is used."""

    @property
    def errored(self) -> bool:
        """Whether the engine is dead."""
        ...

    async def init_weight_transfer_engine(self, request: Any) -> None:
        """Give the worker's weight transfer engine what it needs to know."""

    async def start_weight_update(self) -> None:
        """Begin; raises if an update was begun."""

    async def update_weights(self, request: Any) -> None:
        """Take a step; an exception ends the update."""

    async def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update; an exception does not."""

    async def update_weight_version(self, new_version: str) -> None:
        """Name the weights."""

    async def is_paused(self) -> bool:
        """Say whether nothing is scheduled: paused, or asleep."""
        ...

    async def pause_generation(self, *, mode: Literal["abort", "wait", "keep"] = ..., clear_cache: bool = ...) -> None:
        """Schedule nothing new."""

    async def resume_generation(self) -> None:
        """Schedule again."""


class UpdateEngine:
    """vLLM's engine behind its client; `init_request` and `update_request` make its requests."""

    def __init__(
        self,
        client: EngineClient,
        init_request: Callable[[dict[str, Any]], Any],
        update_request: Callable[[dict[str, Any]], Any],
    ) -> None:
        self._client = client
        self._init_request = init_request
        self._update_request = update_request
        self._turn = asyncio.Lock()

    async def check(self) -> None:
        """Raise EngineFailed if the engine is dead."""
        if self._client.errored:
            raise EngineFailed(_DEAD)

    async def begin(self) -> None:
        """Begin an update, in place of one that was left behind."""
        try:
            await self._told(self._client.start_weight_update())
        except EngineFailed:
            await self.abort("")
            await self._told(self._client.start_weight_update())

    async def ticket(self, info: Mapping[str, Any]) -> None:
        """Pass on how to reach the trainer."""
        await self._told(self._client.init_weight_transfer_engine(self._init_request(dict(info))))

    async def update(self, info: Mapping[str, Any]) -> None:
        """Take a step of an update; a step that fails ends the update in the worker."""
        await self._told(self._client.update_weights(self._update_request(dict(info))))

    async def abort(self, session: str) -> None:
        """End the update in the worker, whatever it is at."""
        with suppress(EngineFailed):  # it always fails: for vLLM's worker an update ends by a commit or by an exception
            await self.update({"phase": "abort", "session": session})

    async def commit(self, version: str) -> None:
        """Have what was received serve, under this name."""
        await self._told(self._client.finish_weight_update(version))

    async def name_version(self, version: str) -> None:
        """Say under which name the weights serve."""
        await self._told(self._client.update_weight_version(version))

    @asynccontextmanager
    async def paused(self, within_s: float) -> AsyncGenerator[None]:
        """Compute nothing in the block, with empty caches; raises Refusal (503) if what is in flight does not end in time.

        Afterwards it is as before: an engine that was paused by others, or sleeps, is not resumed.
        """
        was_paused = await self._answered(self._client.is_paused())
        try:
            try:
                async with asyncio.timeout(within_s):
                    await self._answered(self._client.pause_generation(mode="wait", clear_cache=True))
            except TimeoutError:
                raise Refusal(
                    503, "not_drained", f"the engine was not idle within {within_s:.1f} s; nothing was committed"
                ) from None
            yield
        finally:
            if not was_paused:
                await self._answered(self._client.resume_generation())

    async def _told(self, call: Coroutine[Any, Any, None]) -> None:
        async with self._turn:
            await self._answered(call)

    async def _answered(self, call: Awaitable[Any]) -> Any:
        """Return the answer; raises EngineFailed, also if the engine dies meanwhile: vLLM's client would wait for ever."""
        task = asyncio.ensure_future(call)
        try:
            while not (await asyncio.wait([task], timeout=_LOOK_S))[0]:
                await self.check()
            return task.result()
        except EngineFailed:
            raise
        except Exception as error:  # whatever a worker raised comes as a bare Exception with its text
            words = _DEAD if self._client.errored else str(error)[-_MESSAGE:] or type(error).__name__
            raise EngineFailed(words) from error
        finally:
            task.cancel()

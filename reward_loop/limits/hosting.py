"""A LimitServer in a thread of its own, so that it answers while the event loop of the process that serves it is busy."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

from reward_loop.limits.server import LimitServer

_ENDING_S = 5.0


class HostedServer:
    """Serves from `start` to `stop`, or until the process ends."""

    def __init__(self, server: LimitServer) -> None:
        self._server = server
        self._listening: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._listening.set_running_or_notify_cancel()  # from here on a caller that is cancelled can't cancel it
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="rate-limit-server", daemon=True)

    async def start(self) -> None:
        """Listen; OSError where the address is taken or not this machine's."""
        self._thread.start()
        try:
            await asyncio.wrap_future(self._listening)
        except asyncio.CancelledError:
            self._end()
            raise

    async def stop(self) -> None:
        """Hang up on everyone and end the thread."""
        self._end()
        await asyncio.to_thread(self._thread.join, _ENDING_S)

    def _end(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._ended.set)
        except RuntimeError:  # the loop is closed: it never listened
            return

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            async with self._server:
                self._listening.set_result(None)
                await self._ended.wait()
        except Exception as error:  # whatever it is, `start` must not wait for ever
            if self._listening.done():
                raise
            self._listening.set_exception(error)

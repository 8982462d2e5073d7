"""Routes to results that were promised."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from reward_loop.rinker.server.answers import retrieved, say
from reward_loop.rinker.server.promise import Promise
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.routes import Route, Routes
from reward_loop.rinker.wire.future_bodies import CancelFuture, RetrieveFuture


class FutureRoutes(Routes):
    """To fetch results and to give them up."""

    def table(self) -> Sequence[Route]:
        """Return the routes."""
        return [("POST", "/retrieve_future", self.retrieve), ("POST", "/cancel_future", self.cancel)]

    async def retrieve(self, request: web.Request) -> web.Response:
        """Wait for a result, for a while."""
        asked = await self.read(request, RetrieveFuture)
        promise = self.hub.promises.get(asked.request_id)
        return await retrieved(self.hub, request, promise, size_will_do=asked.allow_metadata_only)

    async def cancel(self, request: web.Request) -> web.Response:
        """Give up a request, if it is not done."""
        asked = await self.read(request, CancelFuture)
        promise = self._named(asked)
        if promise is not None:
            self.hub.cancel(promise)
        return say({})

    def _named(self, asked: CancelFuture) -> Promise | None:
        if asked.request_id is None:
            return self.hub.promises.find(("sample", asked.sampling_session_id, asked.seq_id))
        try:
            return self.hub.promises.get(asked.request_id)
        except Refusal as refusal:
            if refusal.status != 410:  # one that is gone is given up already
                raise
            return None

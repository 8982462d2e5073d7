"""Routes about models as training runs, and about what was saved of them, as the backend lists it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from aiohttp import web

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.backend import Catalog
from reward_loop.rinker.server.answers import say
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.routes import Route, Routes
from reward_loop.rinker.wire.model_bodies import WeightsInfo
from reward_loop.rinker.wire.replies import listing_of


class RunRoutes(Routes):
    """To look, and to remove what was saved."""

    def table(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            ("GET", "/training_runs", self.runs),
            ("GET", "/training_runs/{run_id}", self.run),
            ("GET", "/training_runs/{run_id}/checkpoints", self.checkpoints),
            ("DELETE", "/training_runs/{run_id}/checkpoints/{checkpoint_id:.+}", self.delete),
            ("GET", "/checkpoints", self.all_checkpoints),
            ("POST", "/weights_info", self.weights_info),
        ]

    async def runs(self, request: web.Request) -> web.Response:
        """List the models that are trained now."""
        limit, offset = _number(request, "limit", 20), _number(request, "offset", 0)
        return say(listing_of(await self._catalog.training_runs(limit=limit, offset=offset)))

    async def run(self, request: web.Request) -> web.Response:
        """Describe one of them."""
        with _not_found():
            return say(listing_of(await self._catalog.training_run(request.match_info["run_id"])))

    async def checkpoints(self, request: web.Request) -> web.Response:
        """List what was saved of a model."""
        return say(listing_of(await self._catalog.checkpoints(request.match_info["run_id"])))

    async def delete(self, request: web.Request) -> web.Response:
        """Remove what was saved."""
        run_id, checkpoint_id = request.match_info["run_id"], request.match_info["checkpoint_id"]
        with _not_found():
            await self._catalog.delete_checkpoint(f"tinker://{run_id}/{checkpoint_id}")
        return say({})

    async def all_checkpoints(self, request: web.Request) -> web.Response:
        """List what was saved of all models."""
        limit, offset = _number(request, "limit", 100), _number(request, "offset", 0)
        return say(listing_of(await self._catalog.all_checkpoints(limit=limit, offset=offset)))

    async def weights_info(self, request: web.Request) -> web.Response:
        """Say what was saved at a path."""
        asked = await self.read(request, WeightsInfo)
        with _not_found():
            return say(listing_of(await self._catalog.weights_info(asked.tinker_path)))

    @property
    def _catalog(self) -> Catalog:
        backend = self.hub.backend
        if not isinstance(backend, Catalog):
            raise Refusal(404, f"{type(backend).__name__}, which is served here, has no list of its checkpoints")
        return backend


@contextlib.contextmanager
def _not_found() -> Generator[None]:
    """Refuse with 404 what the backend calls the user's error: there is no such thing, or nothing can have such a name."""
    try:
        yield
    except RequestFailedError as error:
        if error.category != "user":
            raise
        raise Refusal(404, error.message) from None


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Refusal(400, f"{name}={text!r:.50} must be a number from 0")
    return int(text)

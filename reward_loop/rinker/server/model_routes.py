"""Routes about models: to make one, new or from what was saved, to describe it, and to forget it.

Invariant: a model's name is made of its session's and its number there, because clients work it out by themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.server.answers import promised, say
from reward_loop.rinker.server.hub import Hub
from reward_loop.rinker.server.promise import Promise, Reply
from reward_loop.rinker.server.routes import Route, Routes
from reward_loop.rinker.server.sessions import Model
from reward_loop.rinker.wire.model_bodies import CreateFromWeights, CreateModel, ModelBody
from reward_loop.rinker.wire.replies import reply_of

Made = Callable[[], Awaitable[str]]
"""Makes a model, and returns its name behind."""


class ModelRoutes(Routes):
    """To make models and to forget them."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._being_made = 0

    def table(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            ("POST", "/create_model", self.create),
            ("POST", "/get_info", self.info),
            ("POST", "/unload_model", self.unload),
        ]

    async def create(self, request: web.Request) -> web.Response:
        """Make a new model."""
        asked = await self.read(request, CreateModel)
        spec, metadata = asked.spec(), asked.user_metadata
        name = _name(asked.session_id, asked.model_seq_id)
        promise = self.submit(asked.session_id, name, lambda: self.hub.backend.create_model(spec, metadata, model_id=name))
        return await promised(self.hub, request, promise, model_id=name)

    def submit_from_weights(self, asked: CreateFromWeights) -> Promise:
        """Make a model that goes on from what was saved. Raises Refusal."""
        name = _name(asked.session_id, asked.model_seq_id)
        return self.submit(
            asked.session_id,
            name,
            lambda: self.hub.backend.create_model_from_state(
                asked.path,
                optimizer=asked.optimizer,
                base_model=asked.base_model,
                user_metadata=asked.user_metadata,
                model_id=name,
            ),
            {"path": asked.path, "type": "load_weights"},
        )

    def submit(self, session_id: str, name: str, made: Made, also: Mapping[str, Any] | None = None) -> Promise:
        """Return the promise of a model. Raises Refusal."""
        self.hub.sessions.get(session_id, self.hub.now())
        fields = {"model_id": name, "type": "create_model", **(also or {})}

        async def work() -> Reply:
            await self._make(session_id, name, made)
            return Reply.of(**fields)

        return self.hub.submit(("model", name, 0), session_id, work)

    async def info(self, request: web.Request) -> web.Response:
        """Describe a model."""
        asked = await self.read(request, ModelBody)
        model = self.hub.sessions.model(asked.model_id, self.hub.now())
        info = await self.hub.backend.get_info(model.backend_id)
        return say(reply_of(dataclasses.replace(info, model_id=model.id), "get_info"))

    async def unload(self, request: web.Request) -> web.Response:
        """Forget a model; what was saved of it stays."""
        asked = await self.read(request, ModelBody)
        key = ("unload", asked.model_id)
        promise = self.hub.promises.find(key)
        if promise is None:
            model = self.hub.sessions.model(asked.model_id, self.hub.now())

            async def work() -> Reply:
                self.hub.sessions.models.pop(model.id, None)
                await self.hub.backend.unload_model(model.backend_id)
                return Reply.of(model_id=model.id, type="unload_model")

            promise = self.hub.submit(key, model.session_id, work)
        return await promised(self.hub, request, promise, model_id=asked.model_id)

    async def _make(self, session_id: str, name: str, made: Made) -> None:
        most = self.hub.settings.max_models
        models = self.hub.sessions.models
        if len(models) + self._being_made >= most:
            raise RequestFailedError(
                f"the server has its {most} models already (max_models); unload one, or finish a session", category="user"
            )
        self._being_made += 1
        try:
            backend_id = await made()
            info = await self.hub.backend.get_info(backend_id)
        finally:
            self._being_made -= 1
        models[name] = Model(name, backend_id, session_id, info.model_data.model_name)


def _name(session_id: str, model_seq_id: int) -> str:
    return f"{session_id}:train:{model_seq_id}"

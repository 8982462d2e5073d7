"""Routes of training: forward and backward passes, optimiser steps, saving and loading.

Invariants: what is asked of one model runs in the order of `seq_id` (the backend sees to that), so every `seq_id` that arrived
takes its place, even that of a request which can't be understood: those after it would wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from aiohttp import web

from reward_loop.errors import DataError, RequestFailedError
from reward_loop.rinker.server.answers import promised
from reward_loop.rinker.server.hub import Hub
from reward_loop.rinker.server.model_routes import ModelRoutes
from reward_loop.rinker.server.promise import Promise, Reply
from reward_loop.rinker.server.routes import Route, Routes
from reward_loop.rinker.server.sessions import Model, SamplingSession
from reward_loop.rinker.wire.allowance import Allowance
from reward_loop.rinker.wire.body import OpenBody
from reward_loop.rinker.wire.forward_call import decode_forward_call
from reward_loop.rinker.wire.forward_output import encode_forward_output
from reward_loop.rinker.wire.model_bodies import (
    CreateFromWeights,
    LoadWeights,
    OptimStep,
    Place,
    SaveWeights,
    SaveWeightsForSampler,
)
from reward_loop.rinker.wire.protocol import PROTOBUF, messages, parsed
from reward_loop.rinker.wire.replies import json_bytes, reply_of

AskedT = TypeVar("AskedT", OptimStep, SaveWeights, SaveWeightsForSampler, LoadWeights)

_IN_A_THREAD_BYTES = 1 << 18
"""Larger messages are read and written beside the loop."""


class LoadTarget(OpenBody):
    """What tells whether a model is to load, or to be made by loading."""

    session_id: str | None = None


class TrainingRoutes(Routes):
    """What is asked of models in the order of `seq_id`."""

    def __init__(self, hub: Hub, models: ModelRoutes) -> None:
        super().__init__(hub)
        self._models = models

    def table(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            ("POST", "/forward_backward", self.forward_backward),
            ("POST", "/optim_step", self.optim_step),
            ("POST", "/save_weights", self.save_weights),
            ("POST", "/save_weights_for_sampler", self.save_for_sampler),
            ("POST", "/load_weights", self.load_weights),
        ]

    async def forward_backward(self, request: web.Request) -> web.Response:
        """Run a forward pass, and a backward pass unless it says `forward_only`."""
        if request.content_type != PROTOBUF:
            raise DataError(f"forward_backward takes {PROTOBUF}, not {request.content_type!r:.100}")
        body = await self.body(request)
        message = await _beside(len(body), lambda: parsed(messages.ForwardBackwardRequest, body))
        model_id, seq_id = message.model_id, message.seq_id
        place = Place.made(model_id=model_id, seq_id=seq_id)
        allowance = Allowance(self.hub.settings.max_unpacked_mb << 20)

        async def work(model: Model) -> Reply:
            call = await _beside(len(body), lambda: decode_forward_call(message, allowance))
            output = await self.hub.backend.forward_backward(
                model.backend_id, seq_id, call.data, call.loss_fn, call.config, forward_only=call.forward_only
            )
            return Reply(await _beside(len(body), lambda: encode_forward_output(output)), PROTOBUF)

        return await promised(self.hub, request, self._submit(place, work), model_id=model_id)

    async def optim_step(self, request: web.Request) -> web.Response:
        """Step a model's optimiser."""

        async def work(model: Model, asked: OptimStep) -> Reply:
            stepped = await self.hub.backend.optim_step(model.backend_id, asked.seq_id, asked.adam_params)
            return Reply(json_bytes(reply_of(stepped, "optim_step")))

        return await self._asked(request, OptimStep, work)

    async def save_weights(self, request: web.Request) -> web.Response:
        """Keep weights and optimiser."""

        async def work(model: Model, asked: SaveWeights) -> Reply:
            saved = await self.hub.backend.save_state(
                model.backend_id,
                asked.seq_id,
                asked.path,
                overwrite=asked.overwrite,
                ttl_seconds=asked.ttl_seconds,
                user_metadata=asked.user_metadata,
            )
            return Reply(json_bytes(reply_of(saved, "save_weights")))

        return await self._asked(request, SaveWeights, work)

    async def save_for_sampler(self, request: web.Request) -> web.Response:
        """Keep weights to sample from."""
        return await self._asked(request, SaveWeightsForSampler, self._save_for_sampler)

    async def load_weights(self, request: web.Request) -> web.Response:
        """Let a model go on from what was saved, or make one that does."""
        body = await self.body(request)
        if LoadTarget.read(body).session_id is not None:
            promise = self._models.submit_from_weights(CreateFromWeights.read(body))
            return await promised(self.hub, request, promise)

        async def work(model: Model, asked: LoadWeights) -> Reply:
            await self.hub.backend.load_state(model.backend_id, asked.seq_id, asked.path, optimizer=asked.optimizer)
            return Reply.of(path=asked.path, model_id=model.id, type="load_weights")

        return await self._asked(request, LoadWeights, work, body)

    async def _save_for_sampler(self, model: Model, asked: SaveWeightsForSampler) -> Reply:
        saved = await self.hub.backend.save_weights_for_sampler(
            model.backend_id,
            asked.seq_id,
            asked.path,
            asked.kind,
            ttl_seconds=asked.ttl_seconds,
            user_metadata=asked.user_metadata,
        )
        if saved.sampling_session_id is not None:
            sampler = SamplingSession(saved.sampling_session_id, model.session_id, model.base_model)
            self.hub.sessions.sampling[sampler.id] = sampler
        return Reply(json_bytes(reply_of(saved, "save_weights_for_sampler")))

    async def _asked(
        self,
        request: web.Request,
        kind: type[AskedT],
        work: Callable[[Model, AskedT], Coroutine[Any, Any, Reply]],
        body: bytes | None = None,
    ) -> web.Response:
        body = await self.body(request) if body is None else body
        try:
            asked = kind.read(body)
        except DataError as error:
            place, wrong = Place.read(body), error

            async def refuse(model: Model) -> Reply:
                raise wrong

            return await promised(self.hub, request, self._submit(place, refuse), model_id=place.model_id)
        place = Place(model_id=asked.model_id, seq_id=asked.seq_id)
        return await promised(self.hub, request, self._submit(place, lambda model: work(model, asked)), model_id=asked.model_id)

    def _submit(self, place: Place, work: Callable[[Model], Coroutine[Any, Any, Reply]]) -> Promise:
        model = self.hub.sessions.model(place.model_id, self.hub.now())

        async def in_place() -> Reply:
            try:
                return await work(model)
            except DataError as error:
                await self._take_place(model, place.seq_id)
                raise RequestFailedError(error.message, category="user") from None
            except asyncio.CancelledError:
                # Perhaps before the backend was asked; if it was, it knows the number, and this comes to nothing.
                self.hub.leave(lambda: self._take_place(model, place.seq_id), f"number {place.seq_id} of {model.id}")
                raise

        return self.hub.submit(("model", model.id, place.seq_id), model.session_id, in_place)

    async def _take_place(self, model: Model, seq_id: int) -> None:
        # A forward pass over nothing changes nothing; whether it fails is no matter, for the backend counts it as come.
        with contextlib.suppress(RequestFailedError):
            await self.hub.backend.forward_backward(model.backend_id, seq_id, (), "cross_entropy", None, forward_only=True)


ResultT = TypeVar("ResultT")


async def _beside(size: int, work: Callable[[], ResultT]) -> ResultT:
    return work() if size < _IN_A_THREAD_BYTES else await asyncio.to_thread(work)

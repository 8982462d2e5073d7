"""Routes of sampling."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from aiohttp import web

from reward_loop.errors import DataError
from reward_loop.rinker.server.answers import promised, say, streamed
from reward_loop.rinker.server.promise import Promise, Reply
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.routes import Route, Routes
from reward_loop.rinker.server.sessions import SamplingSession
from reward_loop.rinker.wire.protocol import PROTOBUF
from reward_loop.rinker.wire.sample_body import Sample, SampleMany
from reward_loop.rinker.wire.sample_response import encode_sample_response
from reward_loop.rinker.wire.session_bodies import CreateSamplingSession, SamplingSessionBody


class SamplingRoutes(Routes):
    """To sample from saved weights and from base models. Requests run side by side, so that the sampler can batch them."""

    def table(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            ("POST", "/create_sampling_session", self.create),
            ("POST", "/join_sampling_session", self.join),
            ("POST", "/close_sampling_session", self.close),
            ("GET", "/samplers/{sampler_id}", self.describe),
            ("POST", "/asample", self.sample),
            ("POST", "/asample_many", self.sample_many),
        ]

    async def create(self, request: web.Request) -> web.Response:
        """Begin a sampling session. It is not promised, but waited for: so the SDK wants it."""
        asked = await self.read(request, CreateSamplingSession)
        if (asked.model_path is None) == (asked.base_model is None):
            raise DataError("name either model_path or base_model")
        session = self.hub.sessions.get(asked.session_id, self.hub.now())

        async def work() -> Reply:
            sampler_id = await self.hub.backend.create_sampling_session(model_path=asked.model_path, base_model=asked.base_model)
            base_model = await self.hub.backend.sampling_session_model(sampler_id)
            self.hub.sessions.sampling[sampler_id] = SamplingSession(sampler_id, session.id, base_model, asked.model_path)
            return Reply.of(type="create_sampling_session", sampling_session_id=sampler_id)

        promise = self.hub.submit(("sampler", session.id, asked.sampling_session_seq_id), session.id, work)
        reply = await self.hub.settled(promise, self.hub.settings.poll_s)
        if reply is None:
            raise Refusal(408, "the sampling session is still being made; ask again")
        self.hub.promises.fetched(promise, self.hub.now())
        return web.Response(status=400 if reply.failed else 200, body=reply.body, content_type=reply.content_type)

    async def join(self, request: web.Request) -> web.Response:
        """Give a client of a sampling session a number of its own, so that its requests are told from those of others."""
        asked = await self.read(request, SamplingSessionBody)
        sampler = self.hub.sessions.sampler(asked.sampling_session_id, self.hub.now())
        sampler.joined += 1
        return say({"type": "join_sampling_session", "client_counter": sampler.joined})

    async def close(self, request: web.Request) -> web.Response:
        """Forget a sampling session. Not the SDK's: its sampling sessions live as long as their session."""
        asked = await self.read(request, SamplingSessionBody)
        if self.hub.sessions.sampling.pop(asked.sampling_session_id, None) is not None:
            await self.hub.backend.close_sampling_session(asked.sampling_session_id)
        return say({})

    async def describe(self, request: web.Request) -> web.Response:
        """Say what a sampling session samples from."""
        sampler = self.hub.sessions.sampler(request.match_info["sampler_id"], self.hub.now())
        return say({"sampler_id": sampler.id, "base_model": sampler.base_model, "model_path": sampler.model_path})

    async def sample(self, request: web.Request) -> web.Response:
        """Draw sequences."""
        asked = await self.read(request, Sample)
        promise = self._begin(asked)
        return await promised(self.hub, request, promise, sample_sequence_ids=promise.sequence_ids(asked.num_samples))

    async def sample_many(self, request: web.Request) -> web.StreamResponse:
        """Give the results of several calls in one answer, each as it comes. Not the SDK's.

        Calls that are refused or take too long are left out: made once more by themselves, they are told why, or wait on.
        """
        asked = await self.read(request, SampleMany)
        begun: dict[int, Promise] = {}
        for index, one in enumerate(asked.samples):
            with contextlib.suppress(DataError, Refusal):
                begun[index] = self._begin(one)
        return await streamed(self.hub, request, begun)

    def _begin(self, asked: Sample) -> Promise:
        call = asked.call(self.hub.settings.max_samples)
        sampler = self.hub.sessions.sampler(asked.sampling_session_id, self.hub.now())

        async def work() -> Reply:
            return Reply(encode_sample_response(await self.hub.backend.sample(sampler.id, call)), PROTOBUF)

        return self.hub.submit(("sample", sampler.id, asked.seq_id), sampler.session_id, work)

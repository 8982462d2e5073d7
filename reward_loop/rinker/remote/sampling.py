"""Sampling from a server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from urllib.parse import quote

from reward_loop.errors import DataError
from reward_loop.rinker.remote.connection import REQUEST_ID, Connection, checked, fields_of, text_of
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.remote.together import SamplesTogether
from reward_loop.rinker.remote.transport import asked_by_the_user, unreadable
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import SampleResponse
from reward_loop.rinker.wire.sample_body import Sample
from reward_loop.rinker.wire.sample_response import decode_sample_response
from reward_loop.rinker.wire.session_bodies import CreateSamplingSession, SamplingSessionBody

_OF_ONE_CLIENT = 1_000_000_000
"""Numbers that each client of a sampling session has for its requests."""


class HttpSampling:
    """The sampling sessions of a connection, of its own or of others'.

    Invariant: no two clients of one sampling session number their requests alike, or one would get what the other asked for.
    """

    def __init__(self, connection: Connection, settings: HttpSettings) -> None:
        self._connection = connection
        self._numbers: dict[str, Iterator[int]] = {}
        self._joining = asyncio.Lock()
        self._made = itertools.count()
        self._together = SamplesTogether(connection)
        self._under_way = asyncio.Semaphore(settings.max_sampling)

    def own(self, session_id: str) -> str:
        """Note a sampling session that this client has made."""
        self._numbers[session_id] = itertools.count()
        return session_id

    async def create(self, model_path: str | None, base_model: str | None) -> str:
        """See `Backend.create_sampling_session`."""
        session_id = await self._connection.session_id()
        if model_path is not None:
            base_model = None  # the path goes before, and says it
        with asked_by_the_user():
            body = CreateSamplingSession.made(
                session_id=session_id, sampling_session_seq_id=self.number(), base_model=base_model, model_path=model_path
            )
        return self.own(text_of(await self._connection.ask("/create_sampling_session", body), "sampling_session_id"))

    def number(self) -> int:
        """Return the next sampling session's number in the session."""
        return next(self._made)

    async def base_model(self, session_id: str) -> str:
        """See `Backend.sampling_session_model`."""
        return text_of(fields_of(await self._connection.get(f"/samplers/{quote(session_id, safe='')}")), "base_model")

    async def close(self, session_id: str) -> None:
        """See `Backend.close_sampling_session`."""
        self._numbers.pop(session_id, None)
        await self._connection.ask("/close_sampling_session", SamplingSessionBody(sampling_session_id=session_id))

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        """See `Backend.sample`."""
        numbers = self._numbers.get(session_id) or await self._join(session_id)
        with asked_by_the_user():
            body = Sample.of(session_id, next(numbers), call)
        async with self._under_way:
            try:
                together = await self._together.result(body)
                answer = await self._connection.result("/asample", body) if together is None else checked(together)
            except asyncio.CancelledError:
                asked = {"sampling_session_id": session_id, "seq_id": body.seq_id}
                self._connection.begin(self._connection.tell("/cancel_future", asked))
                raise
        promise = answer.headers.get(REQUEST_ID, "")
        try:
            return decode_sample_response(answer.body, [f"{promise}:{index}" for index in range(call.num_samples)])
        except DataError as error:
            raise unreadable(error) from None

    async def _join(self, session_id: str) -> Iterator[int]:
        async with self._joining:
            if session_id not in self._numbers:
                body = SamplingSessionBody(sampling_session_id=session_id)
                joined = await self._connection.ask("/join_sampling_session", body)
                counter = joined.get("client_counter")
                if not isinstance(counter, int):
                    raise unreadable(DataError("it has no client_counter"))
                self._numbers[session_id] = itertools.count(counter * _OF_ONE_CLIENT)
            return self._numbers[session_id]

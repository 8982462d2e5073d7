"""A service behind HTTP as a Backend: what `rinker serve` serves, with all that a service in this process can do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeVar

from reward_loop.errors import DataError, RequestFailedError, TrainingError
from reward_loop.rinker.backend import SamplerKind, SavedForSampler
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.remote.catalog import HttpCatalog
from reward_loop.rinker.remote.connection import Connection, fields_of, text_of
from reward_loop.rinker.remote.sampling import HttpSampling
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.remote.transport import Answer, Transport, asked_by_the_user, unreadable
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import (
    AdamParams,
    CheckpointsListResponse,
    Datum,
    ForwardBackwardOutput,
    GetInfoResponse,
    GetServerCapabilitiesResponse,
    ModelSpec,
    OptimStepResponse,
    SampleResponse,
    SaveWeightsResponse,
    TrainingRun,
    TrainingRunsResponse,
    WeightsInfoResponse,
)
from reward_loop.rinker.wire.body import Body
from reward_loop.rinker.wire.compression import ENCODING, compressed
from reward_loop.rinker.wire.forward_call import ForwardCall, encode_forward_call
from reward_loop.rinker.wire.forward_output import decode_forward_output
from reward_loop.rinker.wire.model_bodies import (
    CreateFromWeights,
    CreateModel,
    LoadWeights,
    ModelBody,
    OptimStep,
    SaveWeights,
    SaveWeightsForSampler,
)
from reward_loop.rinker.wire.protocol import PROTOBUF
from reward_loop.rinker.wire.replies import result_of

T = TypeVar("T")

ANY_KEY = "tml-anyone"
"""What is sent to a server that asks for no particular key."""

_IN_A_THREAD_BYTES = 1 << 18
"""Larger calls are written beside the loop."""


class HttpBackend:
    """The service at `base_url`, for one event loop. A call fails with RequestFailedError("server") once the server has been out
    of reach for `settings.unreachable_s` seconds, with AuthenticationError where it does not know the key.
    """

    def __init__(self, base_url: str, api_key: str | None = None, settings: HttpSettings | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        settings = settings or HttpSettings()
        self._connection = Connection(Transport(self.base_url, api_key or ANY_KEY, settings), settings)
        self._sampling = HttpSampling(self._connection, settings)
        self._catalog = HttpCatalog(self._connection)
        self._models = itertools.count()

    async def capabilities(self) -> GetServerCapabilitiesResponse:
        """See `Backend`."""
        return _read(await self._connection.get("/get_server_capabilities"), GetServerCapabilitiesResponse)

    async def create_model(
        self, spec: ModelSpec, user_metadata: Mapping[str, Any] | None = None, *, model_id: str | None = None
    ) -> str:
        """See `Backend`; the server names its models itself."""
        _check_unnamed(model_id)
        session_id = await self._connection.session_id()
        with asked_by_the_user():
            body = CreateModel.of(session_id, next(self._models), spec, user_metadata)
        return text_of(fields_of(await self._connection.result("/create_model", body)), "model_id")

    async def create_model_from_state(
        self,
        path: str,
        *,
        optimizer: bool,
        base_model: str | None = None,
        user_metadata: Mapping[str, Any] | None = None,
        model_id: str | None = None,
    ) -> str:
        """See `Backend`; the server names its models itself."""
        _check_unnamed(model_id)
        session_id = await self._connection.session_id()
        with asked_by_the_user():
            body = CreateFromWeights.made(
                session_id=session_id,
                model_seq_id=next(self._models),
                path=path,
                optimizer=optimizer,
                base_model=base_model,
                user_metadata=_plain(user_metadata),
            )
        return text_of(fields_of(await self._connection.result("/load_weights", body)), "model_id")

    async def unload_model(self, model_id: str) -> None:
        """See `Backend`."""
        await self._connection.result("/unload_model", ModelBody(model_id=model_id))

    async def get_info(self, model_id: str) -> GetInfoResponse:
        """See `Backend`."""
        return _read(await self._connection.answer("/get_info", ModelBody(model_id=model_id)), GetInfoResponse)

    async def forward_backward(
        self,
        model_id: str,
        seq_id: int,
        data: Sequence[Datum],
        loss_fn: str,
        config: LossConfig | None = None,
        *,
        forward_only: bool = False,
    ) -> ForwardBackwardOutput:
        """See `Backend`."""
        call = ForwardCall(data, loss_fn, config, forward_only)
        try:
            answer = await self._forward(model_id, seq_id, call)
            return decode_forward_output(answer.body)
        except DataError as error:
            raise unreadable(error) from None

    async def optim_step(self, model_id: str, seq_id: int, params: AdamParams) -> OptimStepResponse:
        """See `Backend`."""
        answer = await self._in_turn("/optim_step", OptimStep, model_id, seq_id, adam_params=params)
        return _read(answer, OptimStepResponse)

    async def save_state(
        self,
        model_id: str,
        seq_id: int,
        name: str,
        *,
        overwrite: bool = False,
        ttl_seconds: int | None = None,
        user_metadata: Mapping[str, str] | None = None,
    ) -> SaveWeightsResponse:
        """See `Backend`."""
        kept = {"path": name, "overwrite": overwrite, "ttl_seconds": ttl_seconds, "user_metadata": _plain(user_metadata)}
        return _read(await self._in_turn("/save_weights", SaveWeights, model_id, seq_id, **kept), SaveWeightsResponse)

    async def load_state(self, model_id: str, seq_id: int, path: str, *, optimizer: bool) -> None:
        """See `Backend`."""
        await self._in_turn("/load_weights", LoadWeights, model_id, seq_id, path=path, optimizer=optimizer)

    async def save_weights_for_sampler(
        self,
        model_id: str,
        seq_id: int,
        name: str | None,
        kind: SamplerKind = "snapshot",
        *,
        ttl_seconds: int | None = None,
        user_metadata: Mapping[str, str] | None = None,
    ) -> SavedForSampler:
        """See `Backend`."""
        number = self._sampling.number() if name is None else None
        kept = {"path": name, "kind": kind, "ttl_seconds": ttl_seconds, "user_metadata": _plain(user_metadata)}
        answer = await self._in_turn(
            "/save_weights_for_sampler", SaveWeightsForSampler, model_id, seq_id, sampling_session_seq_id=number, **kept
        )
        saved = _read(answer, SavedForSampler)
        if saved.sampling_session_id is not None:
            self._sampling.own(saved.sampling_session_id)
        return saved

    async def create_sampling_session(self, *, model_path: str | None = None, base_model: str | None = None) -> str:
        """See `Backend`; `model_path` goes before `base_model`."""
        return await self._sampling.create(model_path, base_model)

    async def sampling_session_model(self, session_id: str) -> str:
        """See `Backend`; also of a session that another client has made."""
        return await self._sampling.base_model(session_id)

    async def close_sampling_session(self, session_id: str) -> None:
        """See `Backend`."""
        await self._sampling.close(session_id)

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        """See `Backend`; also from a session that another client has made."""
        return await self._sampling.sample(session_id, call)

    async def checkpoints(self, model_id: str) -> CheckpointsListResponse:
        """See `Catalog`."""
        return await self._catalog.checkpoints(model_id)

    async def all_checkpoints(self, *, limit: int, offset: int) -> CheckpointsListResponse:
        """See `Catalog`."""
        return await self._catalog.all_checkpoints(limit=limit, offset=offset)

    async def delete_checkpoint(self, path: str) -> None:
        """See `Catalog`."""
        await self._catalog.delete_checkpoint(path)

    async def weights_info(self, path: str) -> WeightsInfoResponse:
        """See `Catalog`."""
        return await self._catalog.weights_info(path)

    async def training_run(self, model_id: str) -> TrainingRun:
        """See `Catalog`."""
        return await self._catalog.training_run(model_id)

    async def training_runs(self, *, limit: int, offset: int) -> TrainingRunsResponse:
        """See `Catalog`."""
        return await self._catalog.training_runs(limit=limit, offset=offset)

    async def close(self) -> None:
        """Finish the session at the server, which unloads its models; what was saved stays."""
        await self._connection.close()

    async def _forward(self, model_id: str, seq_id: int, call: ForwardCall) -> Answer:
        async with self._place(model_id, seq_id):
            body = await _written(model_id, seq_id, call)
            headers = {"Content-Type": PROTOBUF}
            if self._connection.compress:
                body = await asyncio.to_thread(compressed, body)
                headers["Content-Encoding"] = ENCODING
            return await self._connection.result_of("/forward_backward", body, headers)

    async def _in_turn(self, route: str, kind: type[Body], model_id: str, seq_id: int, /, **fields: Any) -> Answer:
        async with self._place(model_id, seq_id):
            return await self._connection.result(route, kind.made(model_id=model_id, seq_id=seq_id, **fields))

    @contextlib.asynccontextmanager
    async def _place(self, model_id: str, seq_id: int) -> AsyncGenerator[None]:
        """Fill a place in the order whatever becomes of the block, for what comes behind it would wait for it.

        Raises RequestFailedError("user") for what can't be sent.
        """
        try:
            yield
        except DataError as error:
            await self._fill(model_id, seq_id)
            raise RequestFailedError(error.message, category="user") from None
        except RequestFailedError as error:
            if error.category == "user":  # perhaps refused unread, because it is too large
                await self._fill(model_id, seq_id)
            raise
        except asyncio.CancelledError:
            self._connection.begin(self._fill(model_id, seq_id))
            raise

    async def _fill(self, model_id: str, seq_id: int) -> None:
        # A pass over nothing changes nothing; where the place is filled already, the server takes it for what filled it.
        empty = encode_forward_call(model_id, seq_id, ForwardCall((), "cross_entropy", forward_only=True))
        with contextlib.suppress(TrainingError):
            await self._connection.result_of("/forward_backward", empty, {"Content-Type": PROTOBUF})


async def _written(model_id: str, seq_id: int, call: ForwardCall) -> bytes:
    size = sum(tensor.nbytes for datum in call.data for tensor in datum.loss_fn_inputs.values())
    if size < _IN_A_THREAD_BYTES:
        return encode_forward_call(model_id, seq_id, call)
    return await asyncio.to_thread(encode_forward_call, model_id, seq_id, call)


def _read(answer: Answer, kind: type[T]) -> T:
    try:
        return result_of(answer.body, kind)
    except DataError as error:
        raise unreadable(error) from None


def _plain(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if metadata is None else dict(metadata)


def _check_unnamed(model_id: str | None) -> None:
    if model_id is not None:
        raise RequestFailedError(f"model_id={model_id!r}: a server names its models itself; leave it out", category="user")

"""Train one model: every call returns at once, and what was called runs in the order of the calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.backend import SamplerKind
from reward_loop.rinker.clients import chunks
from reward_loop.rinker.clients.chunks import ChunkLimits
from reward_loop.rinker.clients.client_future import ClientFuture
from reward_loop.rinker.clients.connection import Connection
from reward_loop.rinker.clients.custom_pass import CustomPass
from reward_loop.rinker.clients.model_operations import ModelOperations
from reward_loop.rinker.clients.sampling_client import SamplingClient
from reward_loop.rinker.clients.turns import Turns
from reward_loop.rinker.engine.custom_loss import CustomLossFn
from reward_loop.rinker.futures import APIFuture, ConcurrentFuture
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.types import (
    AdamParams,
    Datum,
    ForwardBackwardOutput,
    GetInfoResponse,
    LoadWeightsResponse,
    OptimStepResponse,
    SaveWeightsResponse,
)

T = TypeVar("T")


class TrainingClient:
    """A model in training. `ServiceClient` makes it; use one for each model, from as many threads as you like.

    A call whose future is cancelled is carried out only if it had begun (at a server: had been sent); those behind it go on.
    """

    def __init__(
        self, connection: Connection, model_id: str, *, info: GetInfoResponse, limits: ChunkLimits | None = None
    ) -> None:
        self.model_id = model_id
        self._connection = connection
        self._info = info
        self._limits = limits or ChunkLimits()
        self._turns = Turns()
        self._model = ModelOperations(connection.backend, model_id)

    def forward(
        self, data: Sequence[Datum], loss_fn: str, loss_fn_config: LossConfig | None = None
    ) -> APIFuture[ForwardBackwardOutput]:
        """Compute losses and log-probabilities, and no gradients."""
        return self._pass(data, loss_fn, loss_fn_config, forward_only=True)

    async def forward_async(
        self, data: Sequence[Datum], loss_fn: str, loss_fn_config: LossConfig | None = None
    ) -> APIFuture[ForwardBackwardOutput]:
        """`forward(…)`; what it returns is awaited once more."""
        return self.forward(data, loss_fn, loss_fn_config)

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | CustomLossFn, loss_fn_config: LossConfig | None = None
    ) -> APIFuture[ForwardBackwardOutput]:
        """Add the gradients of the loss, summed over all tokens, to those that are there.

        `loss_fn` is the name of a loss, or a function as `forward_backward_custom` takes. Raises ValueError without data.
        """
        if callable(loss_fn):
            return self.forward_backward_custom(data, loss_fn)
        return self._pass(data, loss_fn, loss_fn_config, forward_only=False)

    async def forward_backward_async(
        self, data: Sequence[Datum], loss_fn: str | CustomLossFn, loss_fn_config: LossConfig | None = None
    ) -> APIFuture[ForwardBackwardOutput]:
        """`forward_backward(…)`; what it returns is awaited once more."""
        return self.forward_backward(data, loss_fn, loss_fn_config)

    def forward_backward_custom(
        self, data: Sequence[Datum], loss_fn: CustomLossFn, *, loss_type_input: Literal["logprobs"] | None = None
    ) -> APIFuture[ForwardBackwardOutput]:
        """Add the gradients of a loss of your own: `loss_fn(data, logprobs) -> (loss, metrics)`, in a thread of this process.

        `logprobs` are those of the target tokens, a tensor for each datum. It takes two passes. If it fails, whatever was
        called behind it fails too, for its place in the order stays empty.
        """
        if loss_type_input not in (None, "logprobs"):
            raise ValueError(f"loss_type_input={loss_type_input!r}; a custom loss gets logprobs")
        custom = CustomPass(self._model, data, loss_fn, self._limits)
        turn, gate = self._turns.take_gated(custom.operations)
        future = self._connection.start(custom.run(turn, gate))

        def shut_if_cancelled(done: concurrent.futures.Future[ForwardBackwardOutput]) -> None:
            if done.cancelled():  # perhaps before it began, so that it could not shut its gate itself
                gate.shut(asyncio.CancelledError())

        future.future().add_done_callback(shut_if_cancelled)
        return future

    async def forward_backward_custom_async(
        self, data: Sequence[Datum], loss_fn: CustomLossFn, *, loss_type_input: Literal["logprobs"] | None = None
    ) -> APIFuture[ForwardBackwardOutput]:
        """`forward_backward_custom(…)`; what it returns is awaited once more."""
        return self.forward_backward_custom(data, loss_fn, loss_type_input=loss_type_input)

    def optim_step(
        self, optim_params: AdamParams | None = None, *, adam_params: AdamParams | None = None
    ) -> APIFuture[OptimStepResponse]:
        """Step with the gradients that are there, and drop them; `adam_params` is the older name of the argument."""
        if optim_params is not None and adam_params is not None:
            raise ValueError("optim_params and adam_params are the same argument; give one")
        params = optim_params or adam_params
        if not isinstance(params, AdamParams):
            raise TypeError(f"optim_step takes AdamParams, not {type(params).__name__}")
        return self._in_turn(lambda seq_id: self._connection.backend.optim_step(self.model_id, seq_id, params))

    async def optim_step_async(
        self, optim_params: AdamParams | None = None, *, adam_params: AdamParams | None = None
    ) -> APIFuture[OptimStepResponse]:
        """`optim_step(…)`; what it returns is awaited once more."""
        return self.optim_step(optim_params, adam_params=adam_params)

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> APIFuture[SaveWeightsResponse]:
        """Save weights and optimiser under a name, to train on from the path that is returned."""
        return self._in_turn(
            lambda seq_id: self._connection.backend.save_state(
                self.model_id, seq_id, name, overwrite=overwrite, ttl_seconds=ttl_seconds, user_metadata=user_metadata
            )
        )

    async def save_state_async(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> APIFuture[SaveWeightsResponse]:
        """`save_state(…)`; what it returns is awaited once more."""
        return self.save_state(name, ttl_seconds, overwrite, user_metadata)

    def load_state(self, path: str, weights_access_token: str | None = None) -> APIFuture[LoadWeightsResponse]:
        """Go on with saved weights; the optimiser begins anew."""
        return self._load(path, optimizer=False)

    async def load_state_async(self, path: str, weights_access_token: str | None = None) -> APIFuture[LoadWeightsResponse]:
        """`load_state(…)`; what it returns is awaited once more."""
        return self._load(path, optimizer=False)

    def load_state_with_optimizer(self, path: str, weights_access_token: str | None = None) -> APIFuture[LoadWeightsResponse]:
        """Go on with saved weights and the optimiser as it was."""
        return self._load(path, optimizer=True)

    async def load_state_with_optimizer_async(
        self, path: str, weights_access_token: str | None = None
    ) -> APIFuture[LoadWeightsResponse]:
        """`load_state_with_optimizer(…)`; what it returns is awaited once more."""
        return self._load(path, optimizer=True)

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None, user_metadata: dict[str, str] | None = None
    ) -> APIFuture[SaveWeightsResponse]:
        """Save weights under a name, to sample from the path that is returned."""
        return self._in_turn(lambda seq_id: self._save_for_sampler(seq_id, name, ttl_seconds, user_metadata))

    async def save_weights_for_sampler_async(
        self, name: str, ttl_seconds: int | None = None, user_metadata: dict[str, str] | None = None
    ) -> APIFuture[SaveWeightsResponse]:
        """`save_weights_for_sampler(…)`; what it returns is awaited once more."""
        return self.save_weights_for_sampler(name, ttl_seconds, user_metadata)

    def save_weights_and_get_sampling_client(
        self,
        name: str | None = None,
        retry_config: object = None,
        record_stability_info: bool = False,
        kind: SamplerKind = "snapshot",
    ) -> ClientFuture[SamplingClient]:
        """Sample from the weights as they are now: fixed ones, or (inflight) those of the newest such call, for old clients too.

        `name`, `retry_config` and `record_stability_info` have no effect.
        """
        return ClientFuture(self._in_turn(lambda seq_id: self._sampling_client(seq_id, kind)).future())

    async def save_weights_and_get_sampling_client_async(
        self,
        name: str | None = None,
        retry_config: object = None,
        record_stability_info: bool = False,
        kind: SamplerKind = "snapshot",
    ) -> SamplingClient:
        """`await save_weights_and_get_sampling_client(…)`."""
        return await self.save_weights_and_get_sampling_client(name, retry_config, record_stability_info, kind)

    def create_sampling_client(
        self, model_path: str, retry_config: object = None, record_stability_info: bool = False
    ) -> ClientFuture[SamplingClient]:
        """Sample from what was saved at `model_path`; the other arguments have no effect."""
        return ClientFuture(self._connection.start(SamplingClient.open(self._connection, model_path=model_path)).future())

    async def create_sampling_client_async(
        self, model_path: str, retry_config: object = None, record_stability_info: bool = False
    ) -> SamplingClient:
        """`await create_sampling_client(…)`."""
        return await self.create_sampling_client(model_path, retry_config, record_stability_info)

    def get_info(self) -> GetInfoResponse:
        """Describe the model; it was asked for when the client was made."""
        return self._info

    async def get_info_async(self) -> GetInfoResponse:
        """`get_info()`."""
        return self._info

    def get_tokenizer(self) -> Any:
        """Return the base model's tokenizer, loaded in this process. RequestFailedError where it has none."""
        # Imported here: a client that never asks for it need not load transformers.
        from reward_loop.rinker.sampling.tokenizer import read_tokenizer

        return read_tokenizer(self._info.model_data.tokenizer_id)

    def unload(self) -> APIFuture[None]:
        """Free the model; what was saved stays, and calls that wait fail. The SDK has no such method."""
        return self._connection.start(self._connection.backend.unload_model(self.model_id))

    def _pass(
        self, data: Sequence[Datum], loss_fn: str, config: LossConfig | None, *, forward_only: bool
    ) -> APIFuture[ForwardBackwardOutput]:
        parts = chunks.split(data, self._limits)
        turn = self._turns.take(len(parts))

        async def run() -> ForwardBackwardOutput:
            await turn.come()
            return await self._model.forward_backward(turn.seq_ids, parts, loss_fn, config, forward_only=forward_only)

        return self._connection.start(run(), if_cancelled=lambda: self._model.leave(turn))

    def _in_turn(self, operation: Callable[[int], Awaitable[T]]) -> ConcurrentFuture[T]:
        turn = self._turns.take()

        async def run() -> T:
            await turn.come()
            return await operation(turn.seq_ids.start)

        return self._connection.start(run(), if_cancelled=lambda: self._model.leave(turn))

    def _load(self, path: str, *, optimizer: bool) -> APIFuture[LoadWeightsResponse]:
        async def load(seq_id: int) -> LoadWeightsResponse:
            await self._connection.backend.load_state(self.model_id, seq_id, path, optimizer=optimizer)
            return LoadWeightsResponse(path)

        return self._in_turn(load)

    async def _save_for_sampler(
        self, seq_id: int, name: str, ttl_seconds: int | None, user_metadata: dict[str, str] | None
    ) -> SaveWeightsResponse:
        saved = await self._connection.backend.save_weights_for_sampler(
            self.model_id, seq_id, name, ttl_seconds=ttl_seconds, user_metadata=user_metadata
        )
        if saved.path is None:
            raise RequestFailedError(f"the service did not say where it saved {name!r}", category="server")
        return SaveWeightsResponse(saved.path)

    async def _sampling_client(self, seq_id: int, kind: SamplerKind) -> SamplingClient:
        saved = await self._connection.backend.save_weights_for_sampler(self.model_id, seq_id, None, kind)
        if saved.sampling_session_id is None:
            raise RequestFailedError(
                "the service did not open a sampling session for the weights that it saved", category="server"
            )
        return SamplingClient(self._connection, saved.sampling_session_id, self._info.model_data.model_name)

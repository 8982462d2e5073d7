"""A backend without models: it does nothing, notes what it is asked, and gives answers that tell who was asked what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.backend import SamplerKind, SavedForSampler
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import (
    AdamParams,
    Datum,
    ForwardBackwardOutput,
    GetInfoResponse,
    GetServerCapabilitiesResponse,
    ModelData,
    ModelSpec,
    OptimStepResponse,
    SampledSequence,
    SampleResponse,
    SaveWeightsResponse,
    SupportedModel,
    TensorData,
)


class RecordingBackend:
    """`calls` says what was asked; while `open` is not set, what is `held` waits: sampling and passes. Both raise `failure`.

    A pass gives every token the log-probability -1, and has the `metrics` of its number and its data.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.held = {"sample", "forward_backward"}
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None
        self.metrics: Callable[[int, Sequence[Datum]], dict[str, float]] = lambda seq_id, _: {"loss:sum": float(seq_id)}
        self.specs: dict[str, ModelSpec] = {}
        self.samplers = 0
        self.given_up = 0
        self.closed = 0

    async def capabilities(self) -> GetServerCapabilitiesResponse:
        return GetServerCapabilitiesResponse([SupportedModel("base", 64)])

    async def create_model(
        self, spec: ModelSpec, user_metadata: Mapping[str, Any] | None = None, *, model_id: str | None = None
    ) -> str:
        self.calls.append(("create_model", spec, user_metadata))
        if spec.base_model == "missing":
            raise RequestFailedError("there is no base model missing", category="user")
        return self._made(spec, model_id)

    async def create_model_from_state(
        self,
        path: str,
        *,
        optimizer: bool,
        base_model: str | None = None,
        user_metadata: Mapping[str, Any] | None = None,
        model_id: str | None = None,
    ) -> str:
        self.calls.append(("create_model_from_state", path, optimizer, base_model, user_metadata))
        return self._made(ModelSpec(base_model or "base"), model_id)

    async def unload_model(self, model_id: str) -> None:
        self.calls.append(("unload_model", model_id))

    async def get_info(self, model_id: str) -> GetInfoResponse:
        lora = self.specs[model_id].lora
        base = self.specs[model_id].base_model
        return GetInfoResponse(model_id, ModelData(base, base), lora is not None, None if lora is None else lora.rank)

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
        self.calls.append(("forward_backward", model_id, seq_id, list(data), loss_fn, config, forward_only))
        await self._gate("forward_backward")
        self._fail()
        rows = [{"logprobs": TensorData([-1.0] * datum.model_input.length, "float32")} for datum in data]
        return ForwardBackwardOutput("ArrayRecord", rows, self.metrics(seq_id, data))

    async def optim_step(self, model_id: str, seq_id: int, params: AdamParams) -> OptimStepResponse:
        self.calls.append(("optim_step", model_id, seq_id, params))
        await self._gate("optim_step")
        return OptimStepResponse({"step": float(seq_id), "grad_norm": float("nan")})

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
        self.calls.append(("save_state", model_id, seq_id, name, overwrite, ttl_seconds, user_metadata))
        return SaveWeightsResponse(f"tinker://{model_id}/weights/{name}")

    async def load_state(self, model_id: str, seq_id: int, path: str, *, optimizer: bool) -> None:
        self.calls.append(("load_state", model_id, seq_id, path, optimizer))

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
        self.calls.append(("save_weights_for_sampler", model_id, seq_id, name, kind, ttl_seconds, user_metadata))
        if name is None:
            return SavedForSampler(sampling_session_id=self._sampler())
        return SavedForSampler(path=f"tinker://{model_id}/sampler_weights/{name}")

    async def create_sampling_session(self, *, model_path: str | None = None, base_model: str | None = None) -> str:
        self.calls.append(("create_sampling_session", model_path, base_model))
        if model_path == "tinker://no/weights/no":
            raise RequestFailedError("there is no such checkpoint", category="user")
        return self._sampler()

    async def sampling_session_model(self, session_id: str) -> str:
        return "base"

    async def close_sampling_session(self, session_id: str) -> None:
        self.calls.append(("close_sampling_session", session_id))

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        self.calls.append(("sample", session_id, call))
        await self._gate("sample")
        self._fail()
        sequences = [SampledSequence("length", [index], [-0.5]) for index in range(call.num_samples)]
        prompt: list[float | None] = [None, *(-float(n) for n in range(1, call.prompt.length))]
        return SampleResponse(sequences, prompt if call.include_prompt_logprobs else None)

    async def close(self) -> None:
        self.closed += 1

    def asked(self, what: str) -> list[tuple[Any, ...]]:
        """Return the calls of one kind."""
        return [call for call in self.calls if call[0] == what]

    def numbered(self, model_id: str = "model-0") -> dict[int, tuple[Any, ...]]:
        """Return the operations of a model, without its id, by their numbers. AssertionError where one came twice."""
        calls = [call for call in self.calls if call[1] == model_id and len(call) > 2]
        found = {call[2]: (call[0], *call[3:]) for call in calls}
        assert len(found) == len(calls), f"a number came twice: {calls}"
        return found

    async def _gate(self, what: str) -> None:
        try:
            if what in self.held:
                await self.open.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _made(self, spec: ModelSpec, model_id: str | None) -> str:
        name = model_id or f"model-{len(self.specs)}"
        self.specs[name] = spec
        return name

    def _sampler(self) -> str:
        self.samplers += 1
        return f"sampler-{self.samplers}"

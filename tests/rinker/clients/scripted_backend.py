"""A backend that does what a test says, to see what clients send and when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
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


class ScriptedBackend:
    """Notes each operation by its number. A pass gives every target the log-probability -1."""

    def __init__(self) -> None:
        self.sent: dict[int, str] = {}
        self.passed: dict[int, list[Datum]] = {}
        self.specs: list[ModelSpec] = []
        self.held: set[str] = set()
        """Names of operations that do not end by themselves."""
        self.cancelled: list[str] = []
        self.closed = 0

    async def capabilities(self) -> GetServerCapabilitiesResponse:
        return GetServerCapabilitiesResponse([SupportedModel("base", 64)])

    async def create_model(
        self, spec: ModelSpec, user_metadata: Mapping[str, Any] | None = None, *, model_id: str | None = None
    ) -> str:
        await self._note(0, "create_model")
        self.specs.append(spec)
        return f"model-{len(self.specs)}"

    async def create_model_from_state(
        self,
        path: str,
        *,
        optimizer: bool,
        base_model: str | None = None,
        user_metadata: Mapping[str, Any] | None = None,
        model_id: str | None = None,
    ) -> str:
        return f"from {path} {optimizer} {base_model} {user_metadata}"

    async def unload_model(self, model_id: str) -> None:
        await self._note(0, f"unload {model_id}")

    async def get_info(self, model_id: str) -> GetInfoResponse:
        return GetInfoResponse(model_id, ModelData("base", "base"), is_lora=False)

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
        self.passed[seq_id] = list(data)
        await self._note(seq_id, f"{'forward' if forward_only else 'backward'} {loss_fn} {len(data)}")
        if loss_fn == "wrong":
            raise RequestFailedError("unknown loss 'wrong'", category="user")
        rows = [{"logprobs": TensorData([-1.0] * datum.model_input.length, "float32")} for datum in data]
        return ForwardBackwardOutput("scripted", rows, {"loss:sum": float(len(data)), "length:mean": float(len(data))})

    async def optim_step(self, model_id: str, seq_id: int, params: AdamParams) -> OptimStepResponse:
        await self._note(seq_id, f"step {params.learning_rate:g}")
        return OptimStepResponse()

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
        await self._note(seq_id, f"save {name} {overwrite} {ttl_seconds} {user_metadata}")
        return SaveWeightsResponse(f"tinker://{model_id}/weights/{name}")

    async def load_state(self, model_id: str, seq_id: int, path: str, *, optimizer: bool) -> None:
        await self._note(seq_id, f"load {path} {optimizer}")

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
        await self._note(seq_id, f"publish {name} {kind}")
        return (
            SavedForSampler(sampling_session_id=kind)
            if name is None
            else SavedForSampler(path=f"tinker://m/sampler_weights/{name}")
        )

    async def create_sampling_session(self, *, model_path: str | None = None, base_model: str | None = None) -> str:
        return f"{model_path} {base_model}"

    async def sampling_session_model(self, session_id: str) -> str:
        return "base"

    async def close_sampling_session(self, session_id: str) -> None:
        pass

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        await self._note(0, f"sample {session_id}")
        prompt: list[float | None] = [None, *[-float(n) for n in range(1, call.prompt.length)]]
        return SampleResponse(
            [SampledSequence("length", [1], [-0.5])] * call.num_samples, prompt if call.include_prompt_logprobs else None
        )

    async def close(self) -> None:
        self.closed += 1

    async def _note(self, seq_id: int, what: str) -> None:
        assert seq_id == 0 or seq_id not in self.sent, f"{seq_id} was sent twice"
        self.sent[seq_id] = what
        if what.split()[0] in self.held:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(what)
                raise


class RemoteBackend(ScriptedBackend):
    """One that other processes could reach."""

    base_url = "http://127.0.0.1:9"

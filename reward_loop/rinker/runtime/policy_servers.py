"""vLLM servers of this machine that sample from policies, started when their base model is first asked for.

Invariants: a server that crashes is started again by the keeper that started it, at the same address and with the weights that it
served; none outlives `close`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from reward_loop.errors import ConfigError, RequestFailedError, RewardServerError
from reward_loop.rinker.engine.settings import Precision
from reward_loop.rinker.runtime.settings import VLLMServerSettings
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.vllm_sampler import VLLMSampler
from reward_loop.rinker.types import SampleResponse
from reward_loop.serving.devices import device_of, visible_gpus
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec, share_machine

logger = logging.getLogger(__name__)

MakeServer = Callable[[ServerSpec], VLLMServer]


class PolicyServers:
    """A `Sampler`: `settings.count` servers for each base model, whose weights are held as `dtype`. Of one event loop."""

    def __init__(
        self,
        settings: VLLMServerSettings,
        dtype: Precision = "float32",
        make: MakeServer = VLLMServer,
        *,
        trust_remote_code: bool = False,
    ) -> None:
        self._settings, self._dtype, self._make = settings, dtype, make
        self._trust_remote_code = trust_remote_code
        self._servers: list[VLLMServer] = []
        self._samplers: dict[str, VLLMSampler] = {}
        self._starting = asyncio.Lock()
        self._closed = False

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        """See `Sampler.sample`."""
        sampler = self._samplers.get(snapshot.base_model) or await self._sampler(snapshot.base_model)
        return await sampler.sample(snapshot, call)

    async def close(self) -> None:
        """See `Sampler.close`."""
        self._closed = True
        async with self._starting:
            for sampler in self._samplers.values():
                await sampler.close()
            servers, self._servers = self._servers, []
            await _stop(servers)

    async def _sampler(self, base_model: str) -> VLLMSampler:
        async with self._starting:
            if self._closed:
                raise RequestFailedError("the servers are closed; build others", category="server")
            if base_model not in self._samplers:
                self._check_room(base_model)
                urls = self._settings.servers or await self._started(base_model)
                self._samplers[base_model] = VLLMSampler(
                    urls, base_model, self._settings.calls, trust_remote_code=self._trust_remote_code
                )
            return self._samplers[base_model]

    def _check_room(self, base_model: str) -> None:
        most = 1 if self._settings.servers else self._settings.max_models
        if len(self._samplers) >= most:
            names = ", ".join(self._samplers)
            raise RequestFailedError(
                f"vLLM servers run {names}, and {base_model} would be one too many (vllm.max_models={most}); raise it, give "
                "each its own service, or set sampler=hf",
                category="server",
            )

    async def _started(self, base_model: str) -> Sequence[str]:
        """Start the servers of a model, and return their addresses; RequestFailedError where that can't be done."""
        try:
            return await self._side_by_side([self._make(spec) for spec in self._specs(base_model)])
        except* (RewardServerError, ConfigError) as group:
            why = "; ".join(str(error) for error in group.exceptions)
            raise RequestFailedError(f"no vLLM servers for {base_model}: {why}", category="server") from group

    async def _side_by_side(self, servers: Sequence[VLLMServer]) -> Sequence[str]:
        try:
            async with asyncio.TaskGroup() as starting:
                urls = [starting.create_task(server.start()) for server in servers]
        except BaseException:  # cancelled too: no server may stay behind
            await _stop(servers)
            raise
        self._servers += servers
        return [url.result() for url in urls]

    def _specs(self, base_model: str) -> list[ServerSpec]:
        settings, device = self._settings, device_of("auto")
        options: dict[str, object] = {"enforce_eager": True} if device == "cpu" else {}
        if settings.gpu_memory_utilization is not None and device == "cuda":
            options["gpu_memory_utilization"] = settings.gpu_memory_utilization
        specs = [
            ServerSpec(
                base_model,
                settings.calls.model or "policy",
                replica=number,
                device=device,
                dtype=self._dtype,
                max_model_len=settings.max_model_len,
                trust_remote_code=self._trust_remote_code,
                engine_kwargs=options,
                start_timeout_s=settings.start_timeout_s,
                token_env=settings.calls.api_key_env,
            )
            for number in range(settings.count)
        ]
        return share_machine(specs, visible_gpus() if device == "cuda" else ())


async def _stop(servers: Sequence[VLLMServer]) -> None:
    async with asyncio.TaskGroup() as stopping:
        for server in servers:
            stopping.create_task(server.stop())

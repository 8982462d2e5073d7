"""A trainer that takes an update to one server step by step, so that a test can stop between any two."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import torch

from reward_loop.sync.manifest import Manifest, TensorSpec
from reward_loop.sync.packing import pack
from reward_loop.sync.planes.choice import communicator_of
from reward_loop.sync.planes.plane import PlaneName
from tests.vllm_servers import ask

_TIMEOUT_S = 60.0


class Trainer:
    """One update: these tensors, to the server at `url`, as this version."""

    def __init__(
        self, url: str, tensors: Mapping[str, torch.Tensor], version: int, *, mode: str = "full", plane: PlaneName = "shm"
    ) -> None:
        self.url = url
        self.session = uuid4().hex
        self._tensors = tensors
        self._version = version
        self._mode = mode
        specs = [TensorSpec(name, "float32", tuple(tensor.shape)) for name, tensor in tensors.items()]
        self.manifest = Manifest.of(specs, 1 << 20)
        self.communicator = communicator_of(plane)

    async def prepared(self) -> None:
        """Go as far as where the tensors are sent."""
        [ticket] = self.communicator.open(self.manifest, 1, _TIMEOUT_S)
        session = {"session": self.session}
        await self._told("/start_weight_update", {**session, "timeout_s": _TIMEOUT_S, "trainer": "a test"})
        await self._told("/init_weight_transfer_engine", {"init_info": {**session, "ticket": ticket}})
        update = {"phase": "prepare", "manifest": self.manifest.as_json(), "mode": self._mode, "version": self._version}
        await self._told("/update_weights", {"update_info": {**session, **update}})

    async def received(self) -> None:
        """Go as far as where everything is there."""
        await self.prepared()
        receiving = {"update_info": {"session": self.session, "phase": "transfer"}}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._told("/update_weights", receiving))
            await asyncio.to_thread(self.send)

    async def finished(self) -> dict[str, Any]:
        """Go to the end."""
        await self.received()
        return await self._told("/finish_weight_update", self.finish)

    @property
    def finish(self) -> dict[str, Any]:
        """The body of the last request."""
        return {"session": self.session, "weight_version": str(self._version), "drain_timeout_s": _TIMEOUT_S}

    def send(self) -> None:
        """Let all tensors travel."""
        for index, pieces in enumerate(self.manifest.pieces):
            pack(self.communicator.buffer(index), pieces, self._tensors)
            self.communicator.send(index)
        self.communicator.flush()
        self.communicator.close()

    async def _told(self, path: str, body: object) -> dict[str, Any]:
        status, reply = await ask(self.url, path, body)
        assert status == 200, reply
        return reply

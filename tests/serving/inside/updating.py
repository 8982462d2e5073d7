"""The parts of a server that its weight updates need, around a worker that holds no model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward_loop.serving.inside.background import Background
from reward_loop.serving.inside.exchange import Message
from reward_loop.serving.inside.gate import Gate
from reward_loop.serving.inside.residence import Residence
from reward_loop.serving.inside.update_directory import UpdateDirectory
from reward_loop.serving.inside.update_engine import UpdateEngine
from reward_loop.serving.inside.weight_updates import Timings, WeightUpdates
from tests.serving.inside.fake_worker import FakeWorker

PATIENCE_S = 20.0
MANIFEST = {"bucket_bytes": 64, "tensors": [{"name": "score.weight", "dtype": "float32", "shape": [1, 4]}]}


@dataclass(slots=True)
class Server:
    """The parts, by name."""

    worker: FakeWorker
    directory: UpdateDirectory
    gate: Gate
    residence: Residence
    background: Background
    updates: WeightUpdates

    async def received(self, session: str, version: int, *, mode: str = "full", timeout_s: float = PATIENCE_S) -> None:
        """Take an update of this session to where it can be committed."""
        await self.updates.start(session, "trainer", timeout_s)
        await self.updates.ticket(session, {"plane": "gloo"})
        await self.updates.prepare(session, MANIFEST, mode, version)
        await self.updates.transfer(session)

    async def published(self, session: str, version: int, *, mode: str = "full") -> Timings:
        """Do a whole update."""
        await self.received(session, version, mode=mode)
        return await self.updates.finish(session, str(version), PATIENCE_S)


@asynccontextmanager
async def server_at(path: Path) -> AsyncGenerator[Server]:
    """Have a server with this update directory."""
    directory, background = UpdateDirectory(path), Background()
    worker, gate, residence = FakeWorker(directory), Gate(), Residence()
    engine = UpdateEngine(worker, dict, dict)
    try:
        yield Server(
            worker, directory, gate, residence, background,
            WeightUpdates(engine, directory, gate, residence, background, time.monotonic),
        )  # fmt: skip
    finally:
        await background.close()


class Exchange:
    """One request as a middleware sees it, and what it answered; its sender `stays` until then, or hangs up."""

    def __init__(self, body: object = None, *, stays: bool = True) -> None:
        self._stays = stays
        self._body = b"" if body is None else json.dumps(body).encode()
        self._told = False
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        """Give the body, then word of a sender who hangs up."""
        if self._told and self._stays:
            await asyncio.Event().wait()
        if self._told:
            return {"type": "http.disconnect"}
        self._told = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Note what is answered."""
        self.sent.append(message)

    @property
    def status(self) -> int:
        """The status of the reply."""
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the reply."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def reply(self) -> Any:
        """The JSON of the reply."""
        return json.loads(b"".join(message.get("body", b"") for message in self.sent[1:]))

"""Speaks to a server as a client would, one request at a time."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings
from tests.rinker.recording_backend import RecordingBackend

MODEL = {"base_model": "base", "lora_config": {"rank": 8}}


@dataclass(frozen=True, slots=True)
class Said:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The answer, where it is JSON."""
        return json.loads(self.raw)


class Caller:
    """`backend` is what is served."""

    def __init__(self, url: str, client: aiohttp.ClientSession, backend: RecordingBackend) -> None:
        self.url = url
        self.client = client
        self.backend = backend

    async def post(self, path: str, body: object = None, **headers: str) -> Said:
        """Post a body: bytes as they are, anything else as JSON. `Content_Type` is the header Content-Type."""
        raw = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.post(f"{self.url}/api/v1{path}", data=io.BytesIO(raw), headers=named) as response:
            return Said(response.status, response.headers, await response.read())

    async def get(self, path: str) -> Said:
        """Get what is there."""
        async with self.client.get(f"{self.url}/api/v1{path}") as response:
            return Said(response.status, response.headers, await response.read())

    async def result(self, path: str, body: object, **headers: str) -> Said:
        """Post a body, and fetch what is promised."""
        promised = await self.post(path, body, **headers)
        assert promised.status == 200, promised.raw
        return await self.post("/retrieve_future", {"request_id": promised.json["request_id"]})

    async def session(self) -> str:
        """Begin a session."""
        session_id: str = (await self.post("/create_session", {"tags": []})).json["session_id"]
        return session_id

    async def model(self, session_id: str | None = None, number: int = 0) -> str:
        """Make a model."""
        owner = session_id or await self.session()
        made = await self.result("/create_model", {"session_id": owner, "model_seq_id": number, **MODEL})
        model_id: str = made.json["model_id"]
        return model_id

    async def sampler(self, session_id: str | None = None) -> str:
        """Begin a sampling session."""
        owner = session_id or await self.session()
        body = {"session_id": owner, "sampling_session_seq_id": 0, "base_model": "base"}
        sampler_id: str = (await self.post("/create_sampling_session", body)).json["sampling_session_id"]
        return sampler_id


@contextlib.asynccontextmanager
async def calling(key: str = "tml-test", **settings: Any) -> AsyncGenerator[Caller]:
    """Serve a recording backend, and give who speaks to it."""
    backend = RecordingBackend()
    chosen = ServerSettings.model_validate({"port": 0, "poll_s": 5.0} | settings)
    async with (
        serving(backend, chosen) as url,
        aiohttp.ClientSession(headers={"X-API-Key": key}, auto_decompress=False) as client,
    ):
        yield Caller(url, client, backend)


def asked_to_sample(sampler_id: str, number: int = 0, **fields: object) -> dict[str, object]:
    """Return the body of a call of sample."""
    body: dict[str, object] = {
        "sampling_session_id": sampler_id,
        "seq_id": number,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]},
        "sampling_params": {"max_tokens": 1},
    }
    return body | fields

"""Servers that take updates as reward servers do, over real sockets, without a model; they fail at the step that a test names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from aiohttp import web

from reward_loop.errors import WeightSyncError
from reward_loop.sync.digest import digest_of
from reward_loop.sync.manifest import DTYPES, Manifest
from tests.sync.file_plane import received
from tests.sync.serving import served

Step = Literal["version", "start", "init", "prepare", "transfer", "finish", "revert", "abort"]


@dataclass(eq=False)
class UpdateServer:
    """One server; `weights` are those that serve, `calls` the steps in the order in which they were asked for."""

    version: int = 0
    troubles: dict[Step, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    bodies: dict[str, Any] = field(default_factory=dict)
    headers: list[Any] = field(default_factory=list)
    url: str = ""
    session: str | None = None
    busy: str | None = None
    dead: bool = False
    ticket: dict[str, Any] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    """The steps of all servers of a test together."""
    prepared: Manifest | None = None
    _staged: dict[str, torch.Tensor] = field(default_factory=dict)
    _next: int = 0
    _before: tuple[int, dict[str, torch.Tensor]] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else {}
        step = _step(request.path, body)
        self.calls.append(step)
        self.order.append((self.url, step))
        self.bodies[step] = body
        self.headers.append(request.headers)
        if self.dead:
            return _hang_up(request)
        if step in self.troubles and (given := await self.troubles[step](self, request)) is not None:
            return given if isinstance(given, web.StreamResponse) else _hang_up(request)
        try:
            reply: web.StreamResponse = await getattr(self, f"_{step}")(body)
        except WeightSyncError as error:
            reply = refusal(500, error.message)
        return reply

    async def _version(self, _: dict[str, Any]) -> web.Response:
        runtime = {"version": self.version, "device": "cpu", "host": "here", "gpus": [], "sync": True, "busy": self.busy}
        return web.json_response(runtime | self.runtime)

    async def _start(self, body: dict[str, Any]) -> web.Response:
        if self.session is not None:
            return refusal(409, f"busy with the update {self.session}")
        self.session = body["session"]
        return web.json_response({"session": self.session, "version": self.version})

    async def _init(self, body: dict[str, Any]) -> web.Response:
        self._mine(body["init_info"])
        self.ticket = body["init_info"]["ticket"]
        return web.json_response({})

    async def _prepare(self, body: dict[str, Any]) -> web.Response:
        info = body["update_info"]
        self._mine(info)
        if info["version"] <= self.version:
            return refusal(409, f"version {info['version']} is old: {self.version} is served")
        self.prepared, self._next = Manifest.from_json(info["manifest"]), info["version"]
        return web.json_response({})

    async def _transfer(self, body: dict[str, Any]) -> web.Response:
        self._mine(body["update_info"])
        assert self.prepared is not None
        stream: list[torch.Tensor] = []
        for index in range(self.prepared.buckets):
            while (bucket := received(self.ticket, index)) is None:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.002)
            stream.append(bucket)
        data = torch.cat(stream)
        for tensor in self.prepared.tensors:
            begin = self.prepared.offsets[tensor.name]
            part = data[begin : begin + tensor.nbytes]
            self._staged[tensor.name] = part.clone().view(DTYPES[tensor.dtype]).reshape(tensor.shape)
        return web.json_response({"digests": [digest_of(bucket) for bucket in stream], "seconds": 0.0})

    async def _finish(self, body: dict[str, Any]) -> web.Response:
        self._mine(body)
        self.commit()
        self.session = None
        return web.json_response({"version": self.version, "pause_s": 0.2, "drain_s": 0.1, "commit_s": 0.1})

    async def _revert(self, body: dict[str, Any]) -> web.Response:
        self._mine(body)
        assert self._before is not None
        (self.version, self.weights), self.session = self._before, None
        return web.json_response({"version": self.version})

    async def _abort(self, body: dict[str, Any]) -> web.Response:
        if self.session == body["update_info"]["session"]:
            self.session = None
            self._staged.clear()
        return web.json_response({})

    def commit(self) -> None:
        """Serve what was received."""
        self._before = self.version, self.weights
        self.version, self.weights = self._next, self.weights | self._staged
        self._staged = {}

    def _mine(self, info: dict[str, Any]) -> None:
        assert info["session"] == self.session


def _step(path: str, body: dict[str, Any]) -> str:
    match path:
        case "/runtime_version":
            return "version"
        case "/start_weight_update":
            return "start"
        case "/init_weight_transfer_engine":
            return "init"
        case "/update_weights":
            return str(body["update_info"]["phase"])
        case "/finish_weight_update":
            return "revert" if body.get("revert") else "finish"
        case _:
            raise AssertionError(path)


def _hang_up(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.StreamResponse()


def refusal(status: int, message: str) -> web.Response:
    """An answer that says no."""
    return web.json_response({"error": {"type": "refused", "message": message, "code": status}}, status=status)


# -- troubles --------------------------------------------------------------------------------------------------------


def refuses(message: str, status: int = 400) -> Any:
    async def trouble(_: UpdateServer, __: web.Request) -> web.Response:
        return refusal(status, message)

    return trouble


async def hangs(_: UpdateServer, __: web.Request) -> Any:
    """Never answer."""
    await asyncio.Event().wait()


async def hangs_up(_: UpdateServer, __: web.Request) -> Any:
    """Break the connection."""
    return "hang up"


async def dies(server: UpdateServer, _: web.Request) -> Any:
    """Break this connection and every one after it."""
    server.dead = True
    return "hang up"


async def commits_and_hangs_up(server: UpdateServer, _: web.Request) -> Any:
    """Do it, and break the connection instead of saying so."""
    server.commit()
    server.session = None
    return "hang up"


async def lies(server: UpdateServer, _: web.Request) -> Any:
    """Say that something else was received."""
    assert server.prepared is not None
    return web.json_response({"digests": ["0"] * server.prepared.buckets, "seconds": 0.0})


class Late:
    """Goes on with the step once it is let."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let = threading.Event()

    async def __call__(self, _: UpdateServer, __: web.Request) -> Any:
        self.reached.set()
        while not self.let.is_set():  # noqa: ASYNC110 - the test's thread has no loop
            await asyncio.sleep(0.002)


@contextmanager
def update_servers(*servers: UpdateServer) -> Generator[tuple[UpdateServer, ...]]:
    """Serve them, each at its own port, in a thread."""
    order: list[tuple[str, str]] = []
    for server in servers:
        server.order = order
    with served(servers):
        yield servers

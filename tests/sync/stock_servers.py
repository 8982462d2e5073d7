"""Servers with the calls of a vLLM that knows nothing of the reward loop, over real sockets, without a model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from safetensors.torch import load_file

from tests.sync.serving import served


@dataclass(eq=False)
class StockServer:
    """One server; `weights` are those that it has read, `paused` whether it computes nothing."""

    model: Path
    version: str = "default"
    dev_mode: bool = True
    fails: str = ""
    """The call that it answers with 500; "reload_weights" after having read half of the checkpoint."""
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    paused: bool = False
    url: str = ""

    def __post_init__(self) -> None:
        self.weights = load_file(self.model / "model.safetensors")

    async def answer(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json() if request.can_read_body else {}
        path, status = request.path, 200
        if request.method == "POST":
            self.calls.append(str(body.get("method", path.strip("/"))))
        if path == "/v1/models":
            return web.json_response({"data": [{"id": "rm", "root": str(self.model)}]})
        if not self.dev_mode or path in ("/runtime_version", "/admin/replicas"):
            status = 404
        elif request.method == "GET" and path == "/collective_rpc":
            status = 405
        elif path == "/weight_info":
            return web.json_response({"weight_version": self.version})
        elif request.method == "POST":
            status = self._told(path, request.query_string, body)
        return web.json_response({} if status == 200 else {"detail": "no"}, status=status)

    def _told(self, path: str, query: str, body: dict[str, Any]) -> int:
        if path == "/pause":
            assert query == "mode=wait"  # abort would kill a pooling server at work
            self.paused = True
        elif path == "/resume":
            self.paused = False
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == "/collective_rpc":
            assert self.paused
            read = load_file(Path(body["kwargs"]["weights_path"]) / "model.safetensors")
            self.weights = dict(list(read.items())[:1]) if self.fails == "reload_weights" else read
        name = str(body.get("method", path.strip("/")))
        failed, self.fails = name == self.fails, "" if name == self.fails else self.fails
        return 500 if failed else 200


@contextmanager
def stock_servers(*servers: StockServer) -> Generator[tuple[StockServer, ...]]:
    """Serve them, each at its own port, in a thread."""
    with served(servers):
        yield servers

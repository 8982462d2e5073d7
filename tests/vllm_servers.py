"""Real vLLM servers that tests share: started when first asked for, at most three at a time, ended with the test process.

`vllm_servers` gives any server; `reward_server`, `process_server` and `judge_server` give the ones that most tests want. A test
may put one to sleep or kill it: who asks next gets one that is awake. Such tests are marked `vllm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from recipes import tiny_models
from reward_loop.loop_thread import LoopThread
from reward_loop.serving.inside.versions import installed_vllm
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec

MAX_TOKENS = 512
_AT_ONCE = 3


class VLLMServers:
    """The servers of one test session, by the names of their specs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop = LoopThread("vllm servers of the tests")
        self._alive: dict[str, VLLMServer] = {}

    def model(self, name: str, write: Callable[[Path], Path]) -> str:
        """Return the directory of the model of this name, written on first use."""
        path = self._directory / name
        return str(path if path.exists() else write(path))

    def running(self, spec: ServerSpec) -> VLLMServer:
        """Return a server of this spec that is awake; the one asked for longest ago ends if there would be too many.

        As by default it compiles nothing, which takes longer than all that tests do with it; `enforce_eager` may say otherwise.
        """
        server = self._alive.pop(spec.name, None)
        if server is not None:
            self._loop.run(server.wake_up())
        else:
            self.make_room(1)
            server = _server(spec)
            self._loop.run(server.start())
        self._alive[spec.name] = server
        return server

    def start_together(self, specs: Iterable[ServerSpec]) -> None:
        """Start those that don't run at once, which takes little longer than one: a start is mostly a single core's work."""
        servers = [_server(spec) for spec in specs if spec.name not in self._alive]
        self.make_room(len(servers))
        self._loop.run(_start(servers))
        self._alive |= {server.spec.name: server for server in servers}

    def synced(self) -> list[VLLMServer]:
        """Return two servers of one model whose weights tests exchange: others don't want them."""
        path = self.model("reward", tiny_models.reward_model)
        specs = [
            ServerSpec(path, name, "discriminative", max_model_len=MAX_TOKENS, update_dir=f"{path}-updates-{name}")
            for name in ("synced-0", "synced-1")
        ]
        self.start_together(specs)
        return [self.running(spec) for spec in specs]

    def stop(self, server: VLLMServer) -> None:
        """End a server."""
        del self._alive[server.spec.name]
        self._loop.run(server.stop())

    def make_room(self, count: int) -> None:
        """End those asked for longest ago that would be too many beside `count` more."""
        for oldest in list(self._alive.values())[: max(0, len(self._alive) + count - _AT_ONCE)]:
            self.stop(oldest)

    def close(self) -> None:
        """End every server."""
        self._loop.close(self._end)

    async def _end(self) -> None:
        for server in self._alive.values():
            await server.stop()


def _server(spec: ServerSpec) -> VLLMServer:
    return VLLMServer(replace(spec, engine_kwargs={"enforce_eager": True, **spec.engine_kwargs}))


async def _start(servers: Iterable[VLLMServer]) -> None:
    async with asyncio.TaskGroup() as starting:
        for server in servers:
            starting.create_task(server.start())


async def ask(url: str, path: str, body: object = None, *, method: str | None = None) -> tuple[int, dict[str, Any]]:
    """Send a request, POST where it has a body, and return the status and the JSON of its reply."""
    deadline = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=deadline) as session:
        verb = method or ("GET" if body is None else "POST")
        async with session.request(verb, url + path, json=body) as reply:
            return reply.status, await reply.json(content_type=None)


def _reward(servers: VLLMServers) -> ServerSpec:
    model = servers.model("reward", tiny_models.reward_model)
    return ServerSpec(model, "reward", "discriminative", max_model_len=MAX_TOKENS)


def _process(servers: VLLMServers) -> ServerSpec:
    model = servers.model("process", tiny_models.process_model)
    tag = tiny_models.tokenizer().convert_tokens_to_ids(tiny_models.STEP_TAG)
    return ServerSpec(model, "process", "process", max_model_len=MAX_TOKENS, pooling="STEP", step_tag_id=tag)


def _judge(servers: VLLMServers) -> ServerSpec:
    model = servers.model("judge", tiny_models.judge)
    steps = {"max_num_batched_tokens": 128}
    return ServerSpec(model, "judge", "generative", max_model_len=MAX_TOKENS, engine_kwargs=steps)


_SPECS = {"reward_server": _reward, "process_server": _process, "judge_server": _judge}
"""The servers that most tests want, by the names of their fixtures."""


@pytest.fixture(scope="session")
def vllm_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServers]:
    """The servers of this session; those of `_SPECS` that any of its tests asks for are running."""
    if installed_vllm() is None:
        pytest.skip("vLLM is not installed: make setup")
    servers = VLLMServers(tmp_path_factory.mktemp("models"))
    wanted = {name for item in request.session.items if isinstance(item, pytest.Function) for name in item.fixturenames}
    try:
        servers.start_together(spec(servers) for name, spec in _SPECS.items() if name in wanted)
        yield servers
    finally:
        servers.close()


@pytest.fixture
def reward_server(vllm_servers: VLLMServers) -> VLLMServer:
    """A discriminative reward model with one label, pooled at the last token."""
    return vllm_servers.running(_reward(vllm_servers))


@pytest.fixture
def process_server(vllm_servers: VLLMServers) -> VLLMServer:
    """A process reward model with two labels, pooled at each step tag."""
    return vllm_servers.running(_process(vllm_servers))


@pytest.fixture
def judge_server(vllm_servers: VLLMServers) -> VLLMServer:
    """A generative reward model; a prompt of more than 128 tokens is computed in several steps."""
    return vllm_servers.running(_judge(vllm_servers))

"""The conformance checks by our clients over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reward_loop import rinker
from reward_loop.rinker.clients.chunks import ChunkLimits
from reward_loop.rinker.clients.in_process import local_service
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.server.settings import ServerSettings
from tests.rinker.conformance.checks import CHECKS, Check
from tests.rinker.conformance.world import World
from tests.rinker.served import served

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")


@pytest.fixture(scope="module")
def world(policy_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("checkpoints")
    limits = rinker.ServiceSettings(max_models=64, gap_timeout_s=30)
    settings = ServerSettings(max_models=64, compress=True)
    with served(lambda: local_service(directory, EngineSettings(device="cpu"), settings=limits), settings) as url:
        chunked = rinker.ServiceClient(base_url=url, chunks=ChunkLimits(max_data=2))
        with rinker.ServiceClient(base_url=url) as service:
            yield World(rinker, service, policy_path, chunked)
        chunked.close().result()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance_over_http(world: World, check: Check) -> None:
    check(world)

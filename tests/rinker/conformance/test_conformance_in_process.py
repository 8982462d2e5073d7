"""The conformance checks by our clients over a service in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reward_loop import rinker
from reward_loop.rinker.clients.chunks import ChunkLimits
from reward_loop.rinker.clients.in_process import local_service
from reward_loop.rinker.engine.settings import EngineSettings
from tests.rinker.conformance.checks import CHECKS, Check
from tests.rinker.conformance.world import World


@pytest.fixture(scope="module")
def world(policy_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("checkpoints")
    limits = rinker.ServiceSettings(max_models=64, gap_timeout_s=30)
    backend = local_service(directory, EngineSettings(device="cpu"), settings=limits)
    chunked = rinker.ServiceClient(backend=backend, chunks=ChunkLimits(max_data=2))
    with rinker.ServiceClient(backend=backend) as service:
        yield World(rinker, service, policy_path, chunked)
    chunked.close().result()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(world: World, check: Check) -> None:
    check(world)

"""Sandboxes for tests: one per level that this machine offers, each with its processes checked at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from reward_loop.config import SandboxConfig
from reward_loop.sandbox.local import LocalSandbox
from reward_loop.sandbox.probe import Probe, probe

OpenSandbox = Callable[..., Awaitable[LocalSandbox]]


@pytest.fixture(scope="session")
def found() -> Probe:
    """What this machine offers."""
    return probe(SandboxConfig())


@pytest.fixture
async def open_sandbox(found: Probe) -> AsyncIterator[OpenSandbox]:
    """Opens sandboxes and closes them at the end; skips the test where the machine lacks the level."""
    opened: list[LocalSandbox] = []

    async def open_one(level: int, places: int = 2, **settings: object) -> LocalSandbox:
        if level not in found.levels:
            pytest.skip(f"this machine does not offer level {level}: {'; '.join(found.missing)}")
        config = SandboxConfig.model_validate({"level": level, "min_level": 0, **settings})
        sandbox = LocalSandbox(config, found.interpreter, level, found.describe(level), places)  # not to probe for every test
        opened.append(sandbox)
        await sandbox.start()
        return sandbox

    yield open_one
    for sandbox in opened:
        await sandbox.close()

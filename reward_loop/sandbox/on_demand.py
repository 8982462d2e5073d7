"""The sandbox that a configuration names, opened when the first program comes: most jobs run none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from reward_loop.config import RewardLoopConfig
from reward_loop.errors import RewardLoopError
from reward_loop.limits.reservation import Limiter
from reward_loop.machine import cores_per_worker
from reward_loop.sandbox.local import configured_limits, open_local_sandbox
from reward_loop.sandbox.verdict import Limits, ProgramRun, Sandbox, TestResult


class SandboxOnDemand:
    """The service at `sandbox_fusion.url`, else this machine's; what it can't be opened for fails every program.

    `limiter` is asked for the limit on requests that all workers of the job share.
    """

    def __init__(self, config: RewardLoopConfig, workers_on_node: int, limiter: Callable[[], Limiter]) -> None:
        self._config = config
        self._workers_on_node = workers_on_node
        self._limiter = limiter
        self._opening = asyncio.Lock()
        self._opened: Sandbox | RewardLoopError | None = None

    async def open(self) -> Sandbox:
        """Return the sandbox; ConfigError where there is none that the configuration allows."""
        async with self._opening:
            if self._opened is None:
                try:
                    self._opened = await self._open()
                except RewardLoopError as error:
                    self._opened = error
            if isinstance(self._opened, RewardLoopError):
                raise self._opened
            return self._opened

    async def run_program(self, source: str, stdin: bytes, limits: Limits | None = None) -> ProgramRun:
        """Run Python source as a main program; see `Sandbox`."""
        return await (await self.open()).run_program(source, stdin, limits)

    async def run_tests(
        self, source: str, tests: Sequence[str], *, setup: str = "", limits: Limits | None = None, stop_at_failure: bool = True
    ) -> list[TestResult]:
        """Run test snippets against what Python source defines; see `Sandbox`."""
        sandbox = await self.open()
        return await sandbox.run_tests(source, tests, setup=setup, limits=limits, stop_at_failure=stop_at_failure)

    async def close(self) -> None:
        """End what was opened."""
        if self._opened is not None and not isinstance(self._opened, RewardLoopError):
            await self._opened.close()

    async def _open(self) -> Sandbox:
        settings = self._config.sandbox
        if self._config.sandbox_fusion.url:
            from reward_loop.sandbox.fusion import FusionSandbox  # needs aiohttp, which takes a while to import

            return FusionSandbox(self._config.sandbox_fusion, self._limiter(), limits=configured_limits(settings))
        return await open_local_sandbox(settings, settings.max_concurrent or cores_per_worker(self._workers_on_node))

"""A sandbox elsewhere: a service that speaks SandboxFusion's /run_code.

Invariants: one connection pool per sandbox; the limiter bounds what all workers together ask for; every request has a deadline;
what may pass (no connection, 429, 502, 503, 504, the service's own SandboxError) is tried again, everything else is a
SandboxError at once, and no failure of the service is ever taken for one of the program.

The service isolates the program from everything but what runs beside it in one request: the tester of `run_tests`, under the same
user. That can be killed, which is "tampered"; its results are marked with a nonce that only root could read in its memory, so
that a service should not run programs as root.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random

from reward_loop.config import SandboxFusionConfig
from reward_loop.deadline import waiting
from reward_loop.errors import ConfigError, SandboxError
from reward_loop.limits.reservation import Limiter
from reward_loop.limits.retry_after import retry_after_s
from reward_loop.sandbox.fusion_answer import Answer, program_run, read_answer, results_of
from reward_loop.sandbox.fusion_bundle import tester_script
from reward_loop.sandbox.verdict import Limits, ProgramRun, TestResult

MAX_BODY = 32 << 20
"""Bytes of one answer."""

_MAY_PASS = frozenset({502, 503, 504})
_COMPILE_S = 10.0
_SLACK_S = 30.0
_TIMES_ONE_TEST = 10


class _MayPassError(Exception):
    """This attempt failed in a way that another may not."""


class FusionSandbox:
    """Runs programs at `config.url`; use it on one event loop. It closes the limiter that it is given."""

    def __init__(
        self,
        config: SandboxFusionConfig,
        limiter: Limiter,
        *,
        limits: Limits | None = None,
        attempts: int = 6,
        backoff_s: float = 0.5,
        slack_s: float = _SLACK_S,
    ) -> None:
        if not config.url:
            raise ConfigError(
                "sandbox_fusion.url is not set; set it to the address of the service, such as http://host:8080/run_code"
            )
        address = config.url.rstrip("/").removesuffix("/run_code") + "/run_code"
        self._url = address if "://" in address else f"http://{address}"
        self._limits = replace(limits or Limits(), memory_mb=config.memory_limit_mb)
        self._limiter = limiter
        self._connections = config.max_concurrent
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._slack_s = slack_s
        self._session: aiohttp.ClientSession | None = None

    async def run_program(self, source: str, stdin: bytes, limits: Limits | None = None) -> ProgramRun:
        """Run Python source as a main program with this standard input; None: the configured limits."""
        limits = limits or self._limits
        answer = await self._ask(source, stdin.decode("utf-8", "replace"), limits.wall_s, limits.memory_mb)
        return program_run(answer, limits.output_bytes)

    async def run_tests(
        self, source: str, tests: Sequence[str], *, setup: str = "", limits: Limits | None = None, stop_at_failure: bool = True
    ) -> list[TestResult]:
        """Run test snippets against what source defines (see `Sandbox`), all in one request."""
        limits = limits or self._limits
        nonce = secrets.token_hex(16)
        request = {
            "nonce": nonce,
            "source": source,
            "setup": setup,
            "tests": list(tests),
            "wall_s": limits.wall_s,
            "memory_mb": limits.memory_mb,
            "stop_at_failure": stop_at_failure,
        }
        # Each test has its own time; a program that uses all of it on every test must not hold the service for minutes.
        seconds = limits.wall_s * min(len(tests), _TIMES_ONE_TEST) + _COMPILE_S
        answer = await self._ask(tester_script(), json.dumps(request) + "\n", seconds, 2 * limits.memory_mb)
        run = program_run(answer, MAX_BODY)
        return results_of(run, nonce, len(tests), stop_at_failure=stop_at_failure)

    async def close(self) -> None:
        """Close the connections and the limiter."""
        if self._session is not None:
            await self._session.close()
        await self._limiter.close()

    async def _ask(self, code: str, stdin: str, run_timeout_s: float, memory_mb: int) -> Answer:
        payload = {
            "code": code,
            "stdin": stdin,
            "language": "python",
            "compile_timeout": _COMPILE_S,
            "run_timeout": run_timeout_s,
            "memory_limit_MB": memory_mb,
            "files": {},
        }
        deadline_s = _COMPILE_S + run_timeout_s + self._slack_s
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(_MayPassError),
            stop=stop_after_attempt(self._attempts),
            wait=wait_exponential(self._backoff_s, max=30.0) + wait_random(0, self._backoff_s),
            sleep=_pause,
            reraise=True,
        )
        try:
            return await attempts(self._attempt, payload, deadline_s)
        except _MayPassError as error:
            raise SandboxError(
                f"{self._url}: all {self._attempts} attempts failed, the last with: {error}; check the service, "
                "or lower sandbox_fusion.max_concurrent"
            ) from error

    async def _attempt(self, payload: dict[str, Any], deadline_s: float) -> Answer:
        async with self._limiter.reserve() as reservation:
            try:
                async with self._open_session().post(
                    self._url, json=payload, timeout=aiohttp.ClientTimeout(total=deadline_s)
                ) as response:
                    status, headers, body = response.status, response.headers, await _body(response)
            except aiohttp.InvalidURL as error:
                raise SandboxError(f"sandbox_fusion.url: {self._url!r} is no address; set http://host:port/run_code") from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _MayPassError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error
            if status == 429:
                reservation.throttled(retry_after_s(headers))
        shown = repr(body[:200].decode("utf-8", "replace"))
        if status == 429 or status in _MAY_PASS:
            raise _MayPassError(f"status {status}: {shown}")
        if status != 200:
            raise SandboxError(f"{self._url} refused the request with status {status}: {shown}; check sandbox_fusion.url")
        answer = read_answer(body)
        if answer.status == "SandboxError":
            raise _MayPassError(f"the service reports a SandboxError: {(answer.message or '')[:200]}")
        return answer

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=self._connections))
        return self._session


async def _body(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MAX_BODY:
            raise SandboxError(f"the sandbox service's answer is over {MAX_BODY} bytes; make it cut off what programs print")
    return b"".join(parts)


async def _pause(seconds: float) -> None:
    with waiting():
        await asyncio.sleep(seconds)

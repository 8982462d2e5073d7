"""One vLLM server process on this machine: started, probed, watched, started again after a crash, and stopped.

Invariants: `start` returns only when the server has answered a probe; its port is reserved from the first start to `stop`, so
that a restart has the same address, and so are the updates of its weights; after a crash it comes back in the state (awake or
asleep) that was last asked for;
whatever fails, no process is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from reward_loop.errors import RequestRejected, RewardServerError, ServerUnavailable
from reward_loop.serving.command import Command, command_of
from reward_loop.serving.diagnosis import explain
from reward_loop.serving.engine_process import Ended, EngineProcess, new_run_dir
from reward_loop.serving.inside.versions import supported_vllm
from reward_loop.serving.port import ReservedPort
from reward_loop.serving.replica import OnChange, ReplicaState
from reward_loop.serving.restarts import Restarts
from reward_loop.serving.server_calls import ServerCalls
from reward_loop.serving.server_files import directory_of_updates, log_file
from reward_loop.serving.spec import ServerSpec

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_SAY_EVERY_S = 10.0
_TERMINATION_SHARE = 0.6
"""Of `stop_timeout_s`, what a server gets to end by itself; the rest is for killing it and clearing up."""


_HEIR_WAIT_S = 120.0
"""Seconds for which published weights wait for a process that goes on with them."""

BuildCommand = Callable[[ServerSpec, int, str, str], Command]
"""Gives the command of a server from its spec, its port, the directory of its sockets and that of its updates."""


def vllm_command(spec: ServerSpec, port: int, run_dir: str, update_dir: str) -> Command:
    """Return the command of a vLLM server in this process's environment; ConfigError without a vLLM that is supported."""
    supported_vllm()
    return command_of(spec, port, os.environ, run_dir=run_dir, update_dir=update_dir)


class VLLMServer:
    """A server for `spec`; an async context manager, or `start` and `stop`. `asleep`: put it to sleep as soon as it is ready.

    One with an `owner` takes over the weights that were published to the last one of that owner, if this process's predecessor
    died on this machine without stopping it.
    """

    def __init__(
        self,
        spec: ServerSpec,
        *,
        asleep: bool = False,
        on_change: OnChange | None = None,
        build: BuildCommand = vllm_command,
        owner: str | None = None,
    ) -> None:
        self._build = build
        self._spec = spec
        self._want_asleep = asleep
        self._on_change = on_change
        self._state: ReplicaState = "stopped"
        self._trouble = ""
        self._restarts = Restarts(spec.max_restarts, spec.restart_backoff_s)
        self._turn = asyncio.Lock()
        self._port: ReservedPort | None = None
        self._process: EngineProcess | None = None
        self._watching: asyncio.Task[None] | None = None
        self._log_path: Path | None = None
        self._owner = owner
        self._update_dir: str | None = None

    @property
    def spec(self) -> ServerSpec:
        """What it is asked to be."""
        return self._spec

    @property
    def state(self) -> ReplicaState:
        """What it does."""
        return self._state

    @property
    def url(self) -> str:
        """Its address, from `start` to `stop`."""
        if self._port is None:
            raise RewardServerError(f"server {self._spec.label} is not running; start it first")
        return f"http://{self._port.address}"

    @property
    def log_path(self) -> Path:
        """The file that takes what it prints."""
        if self._log_path is None:
            self._log_path = log_file(self._spec)
        return self._log_path

    @property
    def pid(self) -> int:
        """The process that listens; 0 if there is none."""
        return self._process.pid if self._process is not None and self._process.running else 0

    async def start(self) -> str:
        """Return its address once it has answered a probe; ConfigError without vLLM, RewardServerError with its log's end."""
        if self._watching is not None:
            return self.url
        try:
            self._port = self._port or ReservedPort(self._spec.host, self._spec.port)
            self._state = "starting"
            async with self._turn:
                await self._run()
        except BaseException:  # cancelled too: no process may stay behind
            await self.stop()
            raise
        self._watching = asyncio.create_task(self._watch(), name=f"watch {self._spec.label}")
        return self.url

    async def stop(self) -> None:
        """End it and all that it started, within `stop_timeout_s`."""
        await self._halt()
        if self._port is not None:
            self._port.release()
            self._port = None
        if self._update_dir is not None:
            updates, self._update_dir = self._update_dir, None
            await asyncio.to_thread(shutil.rmtree, updates, ignore_errors=True)  # gigabytes, perhaps on a slow disk

    async def restart(self) -> str:
        """Stop it, and start it again at the same address."""
        await self._halt()
        return await self.start()

    async def sleep(self) -> None:
        """Give up its memory; does nothing if it sleeps. One that restarts is not waited for: it comes back asleep."""
        self._want_asleep = True
        if self._state != "restarting":
            await self._switch("asleep")

    async def wake_up(self, *, wait: bool = True) -> None:
        """Be able to serve again; does nothing if it is awake. Without `wait`, one that restarts is not waited for."""
        self._want_asleep = False
        if wait or self._state != "restarting":
            await self._switch("awake")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def _run(self) -> None:
        """Start a process and bring it to the state that is asked for."""
        run_dir = new_run_dir()
        port = self._port.number if self._port is not None else 0
        self._update_dir = self._update_dir or directory_of_updates(self._spec, self._owner)
        self._process = await EngineProcess.start(
            self._build(self._spec, port, run_dir, self._update_dir),
            log=self.log_path,
            run_dir=run_dir,
            update_dir=self._update_dir,
            heir_wait_s=0.0 if self._owner is None else _HEIR_WAIT_S,
            memory_mb=self._spec.memory_mb,
            grace_s=self._spec.stop_timeout_s * _TERMINATION_SHARE,
        )
        started = time.monotonic()
        logger.info("server=%s pid=%d url=%s log=%s starts", self._spec.label, self._process.pid, self.url, self.log_path)
        await self._until_ready(self._process)
        self._set_state("awake")
        if self._want_asleep:
            await self._calls().sleep()
            self._set_state("asleep")
        logger.info("server=%s is %s after %.1f s", self._spec.label, self._state, time.monotonic() - started)

    async def _until_ready(self, process: EngineProcess) -> None:
        dead = asyncio.create_task(process.ended())
        ready = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                await asyncio.wait([dead, ready], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise RewardServerError(
                f"server {self._spec.label} was not ready in {self._spec.start_timeout_s:.0f} s (server.start_timeout_s): "
                f"{self._trouble}; {explain(self.log_path)}"
            ) from None
        else:
            if not ready.done():
                raise self._died(await dead)
            ready.result()
        finally:
            for task in (dead, ready):
                task.cancel()
            await asyncio.wait([dead, ready])

    async def _poll(self) -> None:
        """Return when it is healthy and has answered a probe; say now and then what it is waited for."""
        calls = self._calls()
        started = time.monotonic()
        say_at = started + _SAY_EVERY_S
        for ask in (calls.health, calls.probe):
            while True:
                try:
                    await ask()
                    break
                except ServerUnavailable as error:
                    self._trouble = str(error)
                except RequestRejected as error:
                    raise RewardServerError(
                        f"server {self._spec.label} refuses its probe: {error}; {explain(self.log_path)}"
                    ) from error
                if time.monotonic() > say_at:
                    say_at += _SAY_EVERY_S
                    seconds = time.monotonic() - started
                    logger.info("server=%s still starts after %.0f s, log=%s", self._spec.label, seconds, self.log_path)
                await asyncio.sleep(_POLL_S)

    async def _watch(self) -> None:
        """Start it again when it crashes, until it is given up."""
        while self._process is not None:
            self._restarts.ready_at = time.monotonic()
            ended = await self._process.ended()
            self._process = None
            await self._revive(ended.describe(self._spec.memory_mb))

    async def _revive(self, why: str) -> None:
        """Start it again, after longer and longer pauses; without a process it was given up."""
        while self._process is None:
            self._trouble = f"{why}; {explain(self.log_path)}"
            pause_s = self._restarts.pause_s(time.monotonic())
            if pause_s is None:
                crashes = self._restarts.in_row
                logger.error("server=%s is given up after crash=%d: it %s", self._spec.label, crashes, self._trouble)
                self._set_state("failed")
                return
            crash = self._restarts.in_row
            logger.warning("server=%s %s, crash=%d, starts again in %.1f s", self._spec.label, why, crash, pause_s)
            self._set_state("restarting")
            await asyncio.sleep(pause_s)
            try:
                async with self._turn:
                    await self._run()
            except (RewardServerError, OSError) as error:
                why = f"did not start again: {error}"
                await self._end()

    async def _switch(self, target: Literal["awake", "asleep"]) -> None:
        """Bring it there; while it restarts, wait for that."""
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                while not await self._switched(target):  # noqa: ASYNC110 - what is waited for is a server's answer
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise RewardServerError(
                f"server {self._spec.label} was not {target} in {self._spec.start_timeout_s:.0f} s: "
                f"it is {self._state}; {self._trouble}"
            ) from None

    async def _switched(self, target: Literal["awake", "asleep"]) -> bool:
        async with self._turn:
            if self._state == target:
                return True
            if self._state in ("failed", "stopped"):
                raise RewardServerError(f"server {self._spec.label} can't be {target}: it is {self._state}. {self._trouble}")
            if self._state == "restarting":
                return False
            try:
                await (self._calls().sleep() if target == "asleep" else self._calls().wake_up())
            except ServerUnavailable as error:  # it has crashed, or soon will be seen to have
                self._trouble = str(error)
                return False
            self._set_state(target)
            return True

    def _calls(self) -> ServerCalls:
        return ServerCalls(self._spec, self.url)

    async def _halt(self) -> None:
        self._state = "stopped"
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            self._watching = None
        await self._end()

    async def _end(self) -> None:
        if self._process is not None:
            await self._process.stop()
            self._process = None

    def _set_state(self, state: ReplicaState) -> None:
        if self._state != state:
            self._state = state
            if self._on_change is not None:
                self._on_change(self)

    def _died(self, ended: Ended) -> RewardServerError:
        words = ended.describe(self._spec.memory_mb)
        return RewardServerError(f"server {self._spec.label} {words} while it started; {explain(self.log_path)}")

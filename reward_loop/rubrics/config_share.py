"""One live configuration for several processes: the first one serves it, the others follow it, and if it ends another one serves.

Invariants: a process that has lost the server keeps what it has, and goes on from what the server has when that is back; a
process that takes over first takes in what the audit holds, so that nothing that was answered is lost.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from reward_loop.errors import ConfigError, RequestRejected, SchemaVersionError, ServerUnavailable
from reward_loop.rubrics.audit import keep_audit
from reward_loop.rubrics.config_client import AsyncRubricConfigClient
from reward_loop.rubrics.config_server import ConfigServer
from reward_loop.rubrics.live_config import LiveConfig, Versioned
from reward_loop.rubrics.refusal import refused
from reward_loop.rubrics.reward_config import RewardConfig

logger = logging.getLogger(__name__)

WAIT_S = 30.0
"""How long a process that follows waits for a change before it asks again."""
START_S = 30.0
_SERVED_ELSEWHERE = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
"""By another process, or on another machine, whose address the host is."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0


async def follow(
    live: LiveConfig, client: AsyncRubricConfigClient, wait_s: float = WAIT_S, settled: asyncio.Event | None = None
) -> None:
    """Have a live configuration be what a server has, until that is lost (ServerUnavailable); `settled` is set once it is.

    Raises RequestRejected for a wrong token, and ConfigError for a server of another pipeline.
    """
    wait_now_s = 0.0  # the first time at once, whatever its version
    while True:
        news = await client.news(live.latest_version, wait_now_s)
        latest, immediate = _versioned(news), _versioned(news.get("immediate"))
        if (latest, immediate) != (live.state.latest, live.state.immediate):
            live.adopt(latest, immediate)
            logger.info("config version=%d taken over", latest.version)
        if settled is not None:
            settled.set()
        wait_now_s = wait_s


class ConfigShare:
    """Serves a live configuration at a host and port, or follows the process that does; entered as soon as that is settled.

    With `audit`, a file that these processes share, it goes on from what was recorded there. Entering raises ConfigError (and
    what `follow` raises) where it can do neither.
    """

    def __init__(
        self,
        live: LiveConfig,
        *,
        port: int,
        host: str = "127.0.0.1",
        token: str | None = None,
        audit: Path | None = None,
        wait_s: float = WAIT_S,
        start_s: float = START_S,
    ) -> None:
        self.live = live
        self._start_s = start_s
        self._server = ConfigServer(live, host=host, port=port, token=token)
        self._audit = audit
        self._token = token
        self._wait_s = wait_s
        self._settled = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where the configuration is served, by this process or by another."""
        return self._server.url

    @property
    def serves(self) -> bool:
        """Whether this process serves it."""
        return self.live.follows is None

    async def __aenter__(self) -> Self:
        self.live.follows = self.url  # until this process is known to be the one that serves
        self._life = asyncio.create_task(self._live(), name="rubric configuration")
        settled = asyncio.create_task(self._settled.wait(), name="rubric configuration settled")
        try:
            await asyncio.wait({self._life, settled}, timeout=self._start_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            settled.cancel()
            if not self._settled.is_set():
                await self.__aexit__()
        if not self._settled.is_set():
            raise ConfigError(
                f"{self.url} can't be served here, and nobody gave the configuration there within {self._start_s:g} s; "
                "choose another host or port"
            )
        return self

    async def __aexit__(self, *error: object) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.cancel()
            await asyncio.wait({life})
            self.live.record = self.live.follows = None
            if not life.cancelled():
                life.result()

    async def _live(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            since = time.monotonic()
            try:
                await self._serve()
            except ServerUnavailable as error:
                held = time.monotonic() - since > LONGEST_PAUSE_S  # one line for a loss, not for each try after it
                logger.log(logging.WARNING if held else logging.DEBUG, "config server lost, its last word is kept: %s", error)
            except (ConfigError, RequestRejected, SchemaVersionError) as error:
                if not self._settled.is_set():
                    raise
                logger.error("config server refused, the last configuration is kept: %s", error)
            # Apart, so that not all of those that have lost the server come at the same moment.
            pause_s = FIRST_PAUSE_S if time.monotonic() - since > LONGEST_PAUSE_S else min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311

    async def _serve(self) -> None:
        """Serve until cancelled; where another process does, follow it until it is lost."""
        self.live.follows = self.url
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._server)
            except OSError as error:
                if error.errno not in _SERVED_ELSEWHERE:
                    raise ConfigError(f"{self.url} can't be served: {error.strerror}; choose another host or port") from error
            else:
                self._take_over()
                await asyncio.Event().wait()
        client = AsyncRubricConfigClient(self.url, token=self._token)
        await follow(self.live, client, self._wait_s, settled=self._settled)

    def _take_over(self) -> None:
        if self._audit is not None:
            keep_audit(self.live, self._audit, now=time.time())
        self.live.follows = None
        self._settled.set()
        logger.info("config version=%d served at %s", self.live.latest_version, self.url)


def _versioned(content: object) -> Versioned:
    """Read what a server answers; ConfigRefused where it is no configuration."""
    if not isinstance(content, dict) or not isinstance(content.get("config_version"), int):
        raise refused("bad_shape", f"the server's answer is no configuration: {content!r:.200}")
    config = {key: value for key, value in content.items() if key not in ("config_version", "immediate")}
    return Versioned(RewardConfig.load(config), content["config_version"])

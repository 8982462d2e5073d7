"""The vLLM servers of one model, each as good as another: who is asked, and who is asked next when that one fails.

Invariants: a call goes to the server with the fewest in flight; it is asked again elsewhere only where a server failed, never
where it refused; every call ends by its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError
from yarl import URL

from reward_loop.errors import RequestFailedError, RequestRejected, RewardServerError, TooManyRequests
from reward_loop.rinker.sampling.vllm_settings import VLLMSamplerSettings
from reward_loop.scoring.retries import Patience
from reward_loop.scoring.transport import Call, Reply, encoded, failure, misfit, send

logger = logging.getLogger(__name__)

_LOOK_S = 0.25
_ONCE = Patience(attempts=1)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What the servers say of their model."""

    name: str
    max_length: int | None
    """Most tokens of prompt and answer together."""


class _Card(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    max_model_len: int | None = None


class _Models(BaseModel):
    model_config = ConfigDict(extra="ignore")

    data: list[_Card]


class VLLMFleet:
    """The servers at these addresses ("http://host:port")."""

    def __init__(self, urls: Sequence[str], settings: VLLMSamplerSettings) -> None:
        self.urls = tuple(urls)
        self._settings = settings
        self._in_flight: Counter[str] = Counter()

    async def model(self) -> ServedModel:
        """Ask which model they serve; RequestFailedError "server" where there is none of the wanted name."""
        reply = await self._asked("/v1/models", None)
        try:
            cards = _Models.model_validate_json(reply.body).data
        except ValidationError as error:
            raise RequestFailedError(f"{reply.url} is no vLLM server: {misfit(error)}", category="server") from None
        wanted = self._settings.model
        for card in cards:
            if wanted in (None, card.id):
                return ServedModel(card.id, card.max_model_len)
        names = ", ".join(card.id for card in cards) or "none"
        raise RequestFailedError(
            f"{reply.url} serves {names} and not {wanted!r}; set runtime.vllm.calls.model", category="server"
        )

    async def complete(self, body: Mapping[str, object]) -> Reply:
        """Return the reply of one of them; RequestFailedError "user" where it refuses, "server" where all of them fail."""
        return await self._asked("/v1/completions", encoded(body, "a sampler"))

    async def _asked(self, path: str, payload: bytes | None) -> Reply:
        clock = asyncio.get_running_loop().time
        began = clock()
        end, failed = began + self._settings.timeout_s, dict[str, RewardServerError]()
        while True:
            server = self._least_busy(failed)
            try:
                return await self._once(server, path, payload, end)
            except (RequestRejected, RewardServerError) as error:
                if isinstance(error, RequestRejected) and not isinstance(error, TooManyRequests):
                    raise RequestFailedError(f"the server refuses the request: {error.message}", category="user") from error
                failed[server] = error
                logger.warning("server=%s failed a call: %s", server, error)
            if len(failed) == len(self.urls):
                if clock() + _LOOK_S >= min(end, began + self._settings.restart_wait_s):
                    raise _all_failed(failed)
                await asyncio.sleep(_LOOK_S)
                failed.clear()

    async def _once(self, server: str, path: str, payload: bytes | None, end: float) -> Reply:
        key_env = self._settings.api_key_env
        key = os.environ.get(key_env) if key_env else None
        call = Call(URL(server + path), self._settings.timeout_s, payload, key, patience=_ONCE)
        self._in_flight[server] += 1
        try:
            reply = await send(call, end)
        finally:
            self._in_flight[server] -= 1
        if reply.status != 200:
            raise failure(reply)
        return reply

    def _least_busy(self, failed: Collection[str]) -> str:
        return min((url for url in self.urls if url not in failed), key=lambda url: self._in_flight[url])


def _all_failed(failed: Mapping[str, RewardServerError]) -> RequestFailedError:
    each = "; ".join(error.message for error in failed.values())
    return RequestFailedError(f"no server answered ({len(failed)} asked): {each}", category="server")

"""Which snapshot's weights vLLM servers hold, and how they get those of another.

Invariant: `version` is the one under which the servers hold the snapshot that was served last; servers count versions by
themselves, so that also an older snapshot is published under a newer version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from reward_loop.config_sync import SyncConfig
from reward_loop.errors import RequestFailedError, WeightSyncError
from reward_loop.rinker.learner import Weights
from reward_loop.rinker.loading_lock import LOADING
from reward_loop.rinker.sampler import Snapshot
from reward_loop.sync.create import create_reward_publisher
from reward_loop.sync.server_call import Access, call

logger = logging.getLogger(__name__)

_ASK_S = 30.0


class ServedWeights:
    """The weights that the servers at these addresses hold."""

    def __init__(
        self, urls: Sequence[str], settings: SyncConfig, token_env: str | None = None, *, trust_remote_code: bool = False
    ) -> None:
        self._urls, self._trust_remote_code = tuple(urls), trust_remote_code
        self._access = Access(token_env)
        self._publisher = create_reward_publisher(self._urls, generative=True, token_env=token_env, settings=settings)
        self.version: int | None = None
        """None: the servers don't count."""

    async def serve(self, snapshot: Snapshot) -> None:
        """Have every server hold the snapshot's weights. Nothing may be in flight.

        Raises RequestFailedError "server" where it does not come to that; then all hold what they held.
        """
        if snapshot.weights is None and await self._untouched():
            self.version = 0
            return
        weights = await asyncio.to_thread(whole_weights, snapshot, trust_remote_code=self._trust_remote_code)
        try:
            report = await self._publisher.publish_async(weights)
        except WeightSyncError as error:
            message = f"the weights of {snapshot.id} did not reach the servers: {error.message}"
            raise RequestFailedError(message, category="server") from error
        self.version = None if report.plane == "checkpoint" else report.version
        logger.info("snapshot=%s is served as version=%s", snapshot.id, self.version)

    async def _untouched(self) -> bool:
        """Whether every server says that nothing was ever published to it."""
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(self._version(url)) for url in self._urls]
        return all(task.result() == 0 for task in asked)

    async def _version(self, url: str) -> object:
        answer = await call(url, "GET", "/runtime_version", access=self._access, timeout_s=_ASK_S)
        return answer.body.get("version") if answer.good else None


def whole_weights(snapshot: Snapshot, *, trust_remote_code: bool = False) -> Weights:
    """Return the tensors of a snapshot, read from its directory or its base model where it brings none."""
    if isinstance(snapshot.weights, Mapping):
        return snapshot.weights
    from transformers import AutoModelForCausalLM  # here: seconds to import

    loader: Any = AutoModelForCausalLM
    source = snapshot.base_model if snapshot.weights is None else snapshot.weights
    try:
        with LOADING:
            model = loader.from_pretrained(source, dtype="auto", trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise RequestFailedError(f"the weights of {snapshot.id} can't be read: {error}", category="server") from error
    found: dict[str, torch.Tensor] = model.state_dict()
    return found

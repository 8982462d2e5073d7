"""The servers of one model of a `RewardModelManager`, as those find them who publish weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from reward_loop.errors import WeightSyncError
from reward_loop.serving.replica import Replica
from reward_loop.sync.server_call import Access

_LOOK_S = 0.1
_ON_THE_WAY = ("starting", "restarting")


@dataclass(frozen=True, slots=True)
class ManagedServers:
    """These replicas, awake under `lease`."""

    replicas: tuple[Replica, ...]
    lease: Callable[[], AbstractAsyncContextManager[None]]

    @property
    def access(self) -> Access:
        """What lets requests in."""
        return Access(self.replicas[0].spec.token_env)

    async def urls(self, timeout_s: float) -> Sequence[str]:
        """Return the address of each that was not given up, once none is on its way back from a crash.

        Raises WeightSyncError where one takes longer than `timeout_s`, and where all were given up.
        """
        until = asyncio.get_running_loop().time() + timeout_s
        while late := [replica for replica in self.replicas if replica.state in _ON_THE_WAY]:
            if asyncio.get_running_loop().time() > until:
                labels = ", ".join(replica.spec.label for replica in late)
                raise WeightSyncError(f"{labels} is not back from a crash after {timeout_s:.0f} s; an update must reach it too")
            await asyncio.sleep(_LOOK_S)
        urls = tuple(replica.url for replica in self.replicas if replica.state != "failed")
        if not urls:
            raise WeightSyncError(f"every server of {self.replicas[0].spec.name} was given up; its log says why")
        return urls

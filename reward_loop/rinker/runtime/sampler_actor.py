"""The process that samples."""

from __future__ import annotations

import os
from collections import OrderedDict

from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.hf_sampler import HFSampler
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.types import SampleResponse


class SamplerActor:
    """A Hugging Face sampler, and the `keep` snapshots that it was given last."""

    def __init__(self, settings: HFSamplerSettings, keep: int) -> None:
        self._sampler = HFSampler(settings)
        self._keep = keep
        self._held: OrderedDict[str, Snapshot] = OrderedDict()

    async def pid(self) -> int:
        """Return the process."""
        return os.getpid()

    async def hold(self, snapshot: Snapshot) -> list[str]:
        """Keep a snapshot with its weights; return the ids of all that are kept."""
        self._held[snapshot.id] = snapshot
        while len(self._held) > self._keep:
            self._held.popitem(last=False)
        return list(self._held)

    async def sample(self, snapshot_id: str, call: SampleCall) -> SampleResponse | None:
        """See `Sampler.sample`; None where the snapshot is not kept."""
        snapshot = self._held.get(snapshot_id)
        if snapshot is None:
            return None
        self._held.move_to_end(snapshot_id)
        return await self._sampler.sample(snapshot, call)

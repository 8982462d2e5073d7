"""The manager that scores a whole batch in one call."""

from __future__ import annotations

from typing import Any

from reward_loop.data import DataProto
from reward_loop.managers.many import ManySamplesManager
from reward_loop.managers.registry import register


@register("batch")
class BatchRewardManager(ManySamplesManager):
    """Score a whole batch by one call of the function."""

    async def run_batch(self, data: DataProto) -> list[dict[str, Any] | Exception]:
        """Score all rows of a batch."""
        return await self.score_all(data)

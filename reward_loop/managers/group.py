"""The manager that scores the samples of one prompt in one call."""

from __future__ import annotations

from typing import Any

from reward_loop.data import DataProto
from reward_loop.errors import DataError
from reward_loop.managers.many import ManySamplesManager
from reward_loop.managers.registry import register


@register("group")
class GroupRewardManager(ManySamplesManager):
    """Score all samples of one `uid` by one call of the function: pairwise, ranking and tournament rewards."""

    async def run_group(self, data: DataProto) -> list[dict[str, Any] | Exception]:
        """Score all rows of a group."""
        if data.column("uid") is None:
            raise DataError("the manager 'group' needs the column 'uid', the group of each sample")
        return await self.score_all(data)

"""The manager whose function sees all samples of one prompt."""

from __future__ import annotations

import pytest

from reward_loop.errors import DataError
from reward_loop.managers.group import GroupRewardManager
from tests.fakes import config_of, text_batch


def longest_wins(solution_strs: list[str]) -> list[float]:
    return [float(len(text) == max(map(len, solution_strs))) for text in solution_strs]


async def test_the_samples_of_a_group_are_compared() -> None:
    manager = GroupRewardManager(config_of(), None, longest_wins)
    results = await manager.run_group(text_batch(["a", "abc", "ab"], uid=["q", "q", "q"]))
    assert [result["reward_score"] for result in results if isinstance(result, dict)] == [0.0, 1.0, 0.0]


async def test_a_batch_without_groups_is_refused() -> None:
    with pytest.raises(DataError, match="needs the column 'uid'"):
        await GroupRewardManager(config_of(), None, longest_wins).run_group(text_batch(["a"]))

"""A rate limit holds for all workers of a reward loop together, and its waits cost no sample its deadline."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reward_loop import RewardLoopManager
from reward_loop.errors import ConfigError, TooManyRequests
from tests.fakes import config_of, text_batch
from tests.results import rows

LIMITED: dict[str, Any] = {"reward_manager": {"name": "rate_limited"}, "rate_limit": {"max_concurrent": 1}}


async def alone(solution_str: str, marker: Path) -> dict[str, Any]:
    """Fail where another one of these is under way on this machine."""
    os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    await asyncio.sleep(0.02)
    os.unlink(marker)  # noqa: PTH108 - a system call of microseconds
    return {"score": 1.0, "pid": os.getpid()}


def check_that_workers_keep_one_limit(executor: str, marker: Path) -> set[int]:
    settings = {"executor": executor, "num_workers": 2, **LIMITED}
    with RewardLoopManager(config_of(reward_model=settings), compute_score=partial(alone, marker=marker)) as manager:
        result = manager.compute_rm_score(text_batch(["a"] * 40))
    assert set(rows(result, "reward_status")) == {"ok"}
    return set(rows(result, "pid"))


def test_the_samples_of_one_worker_keep_the_limit(tmp_path: Path) -> None:
    assert check_that_workers_keep_one_limit("local", tmp_path / "busy") == {os.getpid()}


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_ray_workers_keep_the_limit_together(tmp_path: Path) -> None:
    assert len(check_that_workers_keep_one_limit("ray", tmp_path / "busy")) == 2


def test_two_loops_share_the_limit_at_one_address(tmp_path: Path, unused_tcp_port: int) -> None:
    shared = {**LIMITED, "rate_limit": {"max_concurrent": 1, "address": f"127.0.0.1:{unused_tcp_port}"}}
    function = partial(alone, marker=tmp_path / "busy")

    async def score(manager: RewardLoopManager) -> list[str]:
        return rows(await manager.compute_rm_score_async(text_batch(["a"] * 20)), "reward_status")

    async def both(*managers: RewardLoopManager) -> list[list[str]]:
        return await asyncio.gather(*map(score, managers))

    config = config_of(reward_model=shared)
    with (
        RewardLoopManager(config, compute_score=function) as one,
        RewardLoopManager(config, compute_score=function) as other,
    ):
        assert asyncio.run(both(one, other)) == [["ok"] * 20] * 2


async def waits(solution_str: str) -> float:
    await asyncio.sleep(0.1)
    return 1.0


def test_the_wait_for_a_turn_does_not_count_towards_the_deadline() -> None:
    settings = {**LIMITED, "timeout_s": 0.5}
    with RewardLoopManager(config_of(reward_model=settings), compute_score=waits) as manager:
        assert set(rows(manager.compute_rm_score(text_batch(["a"] * 12)), "reward_status")) == {"ok"}


def test_a_sample_that_was_put_off_by_a_429_goes_again() -> None:
    answers = [TooManyRequests("busy", retry_after_s=0.05), None, None]

    async def put_off_once(solution_str: str) -> float:
        if error := answers.pop(0):
            raise error
        return 1.0

    with RewardLoopManager(config_of(reward_model=LIMITED), compute_score=put_off_once) as manager:
        assert rows(manager.compute_rm_score(text_batch(["a", "b"])), "rm_scores") == [[1.0], [1.0]]
    assert answers == []


def test_rate_limited_without_a_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rate_limited needs a limit.*max_rpm"):
        RewardLoopManager(config_of(reward_model={"reward_manager": {"name": "rate_limited"}}), compute_score=waits)

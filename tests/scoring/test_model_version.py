"""The version of the weights that score: told with every score, and complained of where it is too old."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from reward_loop.errors import (
    ConfigError,
    WeightSyncError,
)
from reward_loop.scoring.reward_client import ScoringRequest, ScoringResult
from reward_loop.scoring.vllm_client import VLLMRewardClient
from reward_loop.sync.training_mode import RewardModelTrainingMode
from tests.scoring.service import Answer, Reaction, Service, lengths, service


def client(server: Service, **options: Any) -> VLLMRewardClient:
    return VLLMRewardClient(address=server.address, timeout_s=20.0, **options)


def by_version(version: object) -> Reaction:
    """Answer as a server of these weights does."""

    def answer(body: dict[str, Any]) -> Answer:
        status, _, text = lengths(body)
        return status, {"X-Reward-Model-Version": str(version)}, text

    return answer


async def test_every_score_has_the_version_of_the_weights_that_gave_it() -> None:
    async with service(by_version(0), by_version(4)) as server:
        one = client(server)
        assert await one.score_one("a") == ScoringResult(0, 1.0, 0)
        response, _ = await one.score(ScoringRequest("rm", ["a", "bb"]))
    assert response.metadata["version"] == 4
    assert response.results == [ScoringResult(0, 1.0, 4), ScoringResult(1, 2.0, 4)]
    assert one.staleness.newest == 4


async def test_samples_that_travel_together_have_one_version() -> None:
    async with service(by_version(3)) as server:
        one = client(server)
        results = await asyncio.gather(*map(one.score_one, ["a", "bb", "ccc"]))
    assert results == [ScoringResult(0, float(length), 3) for length in (1, 2, 3)]


@pytest.mark.parametrize("version", ["", "four", "-1", "1.5"])
async def test_what_is_no_version_is_not_taken_for_one(version: str) -> None:
    async with service(by_version(version)) as server:
        assert (await client(server).score_one("a")).version is None


async def test_weights_that_are_too_old_fail_each_sample_that_they_scored() -> None:
    async with service(by_version(7), by_version(4), by_version(6)) as server:
        strict = client(server, max_staleness=1, on_stale="raise", max_batch=2)
        assert (await strict.score_one("a")).version == 7
        stale = await asyncio.gather(strict.score_one("a"), strict.score_one("bb"), return_exceptions=True)
        assert [type(error) for error in stale] == [WeightSyncError, WeightSyncError]
        assert stale[0] is not stale[1]
        assert (await strict.score_one("a")).version == 6


async def test_weights_that_are_too_old_fail_a_list_and_name_the_first_input() -> None:
    async with service(by_version(1)) as server:
        strict = client(server, max_staleness=0, on_stale="raise")
        strict.staleness.told(2)
        with pytest.raises(WeightSyncError, match="1 versions behind 2") as raised:
            await strict.score_batch(["a", "bb"])
        assert raised.value.sample == "inputs[0]"
        with pytest.raises(WeightSyncError):
            await strict.score(ScoringRequest("rm", ["a"]))


async def test_weights_that_are_too_old_are_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    async with service(by_version(1)) as server:
        one = client(server, max_staleness=0)
        one.staleness.told(2)
        assert await one.score_batch(["a", "bb"]) == [1.0, 2.0]
    assert caplog.text.count("1 versions behind 2") == 1


def test_a_client_whose_limit_means_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_staleness=-1"):
        VLLMRewardClient(max_staleness=-1)


async def test_weights_that_can_not_be_synced_are_an_error_that_says_why() -> None:
    async with service((404, {}, '{"detail": "Not Found"}')) as server:
        one = client(server)
        head = {"score.weight": torch.ones(1, 4)}
        with pytest.raises(WeightSyncError, match="VLLM_SERVER_DEV_MODE=1"):
            await asyncio.to_thread(one.sync_weights, head, training_mode=RewardModelTrainingMode.HEAD_ONLY, timeout_s=5.0)
        assert one.staleness.newest is None

"""Several votes of one judge."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.errors import ConfigError, RewardServerError, ServerUnavailable, Unscorable
from reward_loop.scoring.judging.votes import Votes, k_votes
from tests.scoring.service import Answer, completion, completions, service

QUESTION = [{"role": "user", "content": "From 1 to 5?"}]


def digit(text: str) -> int | None:
    return int(text) if text.isdigit() else None


async def votes(*answers: Answer, **options: Any) -> Votes[int]:
    async with service(*answers) as judge:
        return await k_votes(QUESTION, k=options.pop("k", 5), read=digit, router_address=judge.address, **options)


async def test_votes_are_counted() -> None:
    result = await votes(completions(["4", "4", "1", "4", "2"], usage={"total_tokens": 50}))
    assert (result.majority, result.mean, result.agreement, result.tokens) == (4, 3.0, 0.6, 50)
    assert result.counts == {4: 3, 1: 1, 2: 1}


async def test_they_are_one_request() -> None:
    async with service(completions(["1"] * 3)) as judge:
        await k_votes(QUESTION, k=3, read=digit, seed=7, router_address=judge.address, sampling={"temperature": 1.0})
        assert judge.asked == [{"messages": QUESTION, "temperature": 1.0, "n": 3, "seed": 7}]


async def test_or_requests_of_their_own_with_seeds_of_their_own() -> None:
    async with service(completion("3", usage={"total_tokens": 10})) as judge:
        result = await k_votes(QUESTION, k=3, read=digit, seed=7, spread=True, router_address=judge.address)
        assert sorted(asked["seed"] for asked in judge.asked) == [7, 8, 9]
    assert (result.votes, result.tokens) == ([3, 3, 3], 30)


async def test_votes_that_can_not_be_read_are_left_out_and_told() -> None:
    result = await votes(completions(["4", "good", "2", "4", None]))
    assert (result.votes, result.unreadable, result.majority) == ([4, 2, 4], 2, 4)


@pytest.mark.parametrize("texts", [["?"] * 5, ["1", "2", "?", "?", "?"], [None] * 5, ["1", "2"]])
async def test_a_judge_of_whom_most_votes_can_not_be_read_is_an_error(texts: list[str | None]) -> None:
    with pytest.raises(RewardServerError, match="of 5 votes of the judge judge-1 can be read"):
        await votes(completions(texts))


def test_votes_that_are_tied_have_no_majority_but_a_mean() -> None:
    tied = Votes([1, 1, 2, 2], 0, 0)
    with pytest.raises(Unscorable, match=r"tied: \{1: 2, 2: 2\}"):
        _ = tied.majority
    assert (tied.mean, tied.agreement) == (1.5, 0.5)


async def test_a_request_that_fails_fails_the_votes() -> None:
    with pytest.raises(ServerUnavailable, match="out of memory"):
        await votes((500, {}, "out of memory"), spread=True)


async def test_no_votes_can_not_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="k=0"):
        await votes(completion(), k=0)

"""Comparisons in both orders."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.errors import RequestRejected, RewardServerError, Unscorable
from reward_loop.scoring.judging.comparison import Comparison, compare_both_orders
from tests.scoring.service import Answer, Reaction, completion, service


def shown(a: str, b: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"A: {a}\nB: {b}"}]


def prefers(answer: str) -> Reaction:
    """A judge that prefers an answer, wherever it is."""

    def react(body: dict[str, Any]) -> Answer:
        a = body["messages"][0]["content"].split("\n")[0]
        return completion("A" if a == f"A: {answer}" else "B", usage={"total_tokens": 5})

    return react


def prefers_the_first(body: dict[str, Any]) -> Answer:
    return completion("A", usage={"total_tokens": 5})


async def compare(judge: Answer | Reaction, **options: Any) -> Comparison:
    async with service(judge) as served:
        return await compare_both_orders("good", "bad", shown, router_address=served.address, **options)


@pytest.mark.parametrize(("answer", "winner", "score"), [("good", "first", 1.0), ("bad", "second", 0.0)])
async def test_the_better_answer_wins_in_both_orders(answer: str, winner: str, score: float) -> None:
    comparison = await compare(prefers(answer))
    assert (comparison.winner, comparison.agreed, comparison.orders) == (winner, True, (winner, winner))
    assert (comparison.score, comparison.tokens) == (score, 10)


async def test_a_judge_that_prefers_what_it_reads_first_makes_a_tie() -> None:
    comparison = await compare(prefers_the_first)
    assert (comparison.winner, comparison.agreed, comparison.orders, comparison.score) == ("tie", False, ("first", "second"), 0.5)


async def test_or_it_judges_nothing() -> None:
    with pytest.raises(Unscorable, match="prefers the first answer, and in the other order the second"):
        await compare(prefers_the_first, disagreement="unscorable")


async def test_a_judge_may_say_itself_that_it_is_a_tie() -> None:
    comparison = await compare(completion("C"), labels=("A", "B", "C"))
    assert (comparison.winner, comparison.agreed) == ("tie", True)


async def test_a_judge_that_says_neither_is_an_error() -> None:
    with pytest.raises(RewardServerError, match="none of"):
        await compare(completion("both"))


async def test_an_order_that_fails_fails_the_comparison_with_the_servers_words() -> None:
    with pytest.raises(RequestRejected, match="too long"):
        await compare((400, {}, "too long"))

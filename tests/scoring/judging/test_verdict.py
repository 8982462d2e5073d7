"""Verdicts of a given form: what is asked for, and what a judge that gave none is taken for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from reward_loop.errors import ConfigError, RewardServerError
from reward_loop.scoring.judging.verdict import Verdict, choice_verdict, structured_verdict
from tests.scoring.service import completion, completions, service

QUESTION = [{"role": "user", "content": "Is 6 * 7 = 42?"}]


class Grade(BaseModel):
    score: Literal[1, 2, 3]
    reason: str


@dataclass
class Points:
    points: int


async def test_a_verdict_has_the_form_that_was_asked_for() -> None:
    async with service(completion('{"score": 2, "reason": "close"}', usage={"total_tokens": 12})) as judge:
        verdict = await structured_verdict(QUESTION, Grade, router_address=judge.address, sampling={"max_tokens": 50})
        assert verdict == Verdict(Grade(score=2, reason="close"), '{"score": 2, "reason": "close"}', 12)
        [asked] = judge.asked
    assert asked["structured_outputs"]["json"]["properties"]["score"]["enum"] == [1, 2, 3]
    assert asked["max_tokens"] == 50
    assert asked["messages"] == QUESTION


async def test_a_form_may_be_a_dataclass() -> None:
    async with service(completion('{"points": 7}')) as judge:
        assert (await structured_verdict(QUESTION, Points, router_address=judge.address)).value == Points(7)


@pytest.mark.parametrize("text", ["", "2", "{}", '{"score": 4, "reason": "?"}', "I think it is right."])
async def test_a_judge_that_gives_no_verdict_is_an_error_and_never_a_score(text: str) -> None:
    async with service(completion(text)) as judge:
        with pytest.raises(RewardServerError, match=r"the judge judge-1 wrote .* but it is no Grade"):
            await structured_verdict(QUESTION, Grade, router_address=judge.address)


async def test_a_verdict_that_was_cut_off_says_what_to_raise() -> None:
    async with service(completions(['{"score": 2, "rea'], finish_reason="length")) as judge:
        with pytest.raises(RewardServerError, match="cut off: raise max_tokens"):
            await structured_verdict(QUESTION, Grade, router_address=judge.address)


async def test_a_judge_that_only_thought_gives_no_verdict() -> None:
    async with service(completion(None)) as judge:
        with pytest.raises(RewardServerError, match="wrote no text"):
            await structured_verdict(QUESTION, Grade, router_address=judge.address)


async def test_a_choice_is_one_of_those_given() -> None:
    async with service(completion(" yes\n")) as judge:
        verdict = await choice_verdict(QUESTION, ["yes", "no"], router_address=judge.address, model="m")
        assert verdict.value == "yes"
        assert judge.asked == [{"model": "m", "messages": QUESTION, "structured_outputs": {"choice": ["yes", "no"]}}]
    async with service(completion("maybe")) as judge:
        with pytest.raises(RewardServerError, match=r"wrote 'maybe', but it is none of \['yes', 'no'\]"):
            await choice_verdict(QUESTION, ["yes", "no"], router_address=judge.address)


@pytest.mark.parametrize("choices", [[], ["yes"], ["yes", "yes"], ["yes", ""]])
async def test_choices_that_leave_no_choice_are_refused(choices: list[str]) -> None:
    with pytest.raises(ConfigError, match="at least two different texts"):
        await choice_verdict(QUESTION, choices, router_address="127.0.0.1:1")


async def test_sampling_can_not_undo_the_form() -> None:
    sampling: dict[str, Any] = {"structured_outputs": {"regex": ".*"}}
    with pytest.raises(ConfigError, match=r"sampling can't hold \['structured_outputs'\]"):
        await choice_verdict(QUESTION, ["yes", "no"], router_address="127.0.0.1:1", sampling=sampling)

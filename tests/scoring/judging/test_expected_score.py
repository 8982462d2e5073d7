"""The expected score over labels, from the probabilities that a judge gives them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError, RewardServerError
from reward_loop.scoring.judging.expected_score import ExpectedScore, expected_score
from tests.scoring.service import Answer, completion, service

QUESTION = [{"role": "user", "content": "How good is it, from 1 to 5? Answer with the digit."}]


class Letters:
    """A tokenizer with one token for each character."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(character) for character in text.lower()]


def told(logprobs: dict[str, float], written: str = "1") -> Answer:
    """A reply with one token, and the log-probabilities of labels as vLLM gives them."""
    top = [{"token": f"token_id:{ord(label)}", "logprob": value, "bytes": None} for label, value in logprobs.items()]
    content = [{"token": f"token_id:{ord(written)}", "logprob": -0.1, "bytes": None, "top_logprobs": top}]
    _, _, body = completion(written, usage={"total_tokens": 9})
    reply: dict[str, Any] = json.loads(body)
    reply["choices"][0]["logprobs"] = {"content": content}
    return 200, {}, json.dumps(reply)


async def expected(answer: Answer, **options: Any) -> ExpectedScore:
    async with service(answer) as judge:
        return await expected_score(QUESTION, tokenizer=Letters(), router_address=judge.address, **options)


async def test_it_is_the_mean_by_the_probabilities_of_the_labels_among_themselves() -> None:
    shares = {"1": 0.1, "2": 0.0, "3": 0.0, "4": 0.1, "5": 0.2}
    logprobs = {label: math.log(share) if share else -9999.0 for label, share in shares.items()}
    result = await expected(told(logprobs))
    assert result.score == pytest.approx((0.1 * 1 + 0.1 * 4 + 0.2 * 5) / 0.4)
    assert result.mass == pytest.approx(0.4)
    assert result.probabilities == pytest.approx({label: share / 0.4 for label, share in shares.items()})
    assert result.tokens == 9


@given(st.lists(st.floats(-9000, 0), min_size=5, max_size=5))
async def test_it_lies_between_the_labels_however_unlikely_they_are(logprobs: list[float]) -> None:
    result = await expected(told(dict(zip("12345", logprobs, strict=True)), written="x"))
    assert 1.0 <= result.score <= 5.0
    assert math.fsum(result.probabilities.values()) == pytest.approx(1.0)


async def test_what_is_asked_for_is_one_token_and_the_log_probabilities_of_the_labels() -> None:
    async with service(told({"y": -1.0, "n": -1.0})) as judge:
        labels = {"y": 1.0, "n": 0.0}
        options: Any = {"sampling": {"temperature": 0.0}, "router_address": judge.address}
        assert (await expected_score(QUESTION, tokenizer=Letters(), labels=labels, **options)).score == pytest.approx(0.5)
        assert judge.asked == [
            {
                "messages": QUESTION,
                "temperature": 0.0,
                "max_tokens": 1,
                "n": 1,
                "logprobs": True,
                "logprob_token_ids": [ord("y"), ord("n")],
                "return_tokens_as_token_ids": True,
            }
        ]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([9, 10], r"other than one token for \{'10'"),
        ({"": 1.0, "2": 2.0}, "other than one token"),
        ({"y": 1.0, "Y": 2.0}, "one token of several labels"),
        ([1], "at least two"),
        ({"1": 1.0, "2": float("nan")}, "finite"),
    ],
)
async def test_labels_that_are_not_one_token_each_are_refused(labels: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        await expected_score(QUESTION, tokenizer=Letters(), labels=labels, router_address="127.0.0.1:1")


@pytest.mark.parametrize(
    "answer",
    [
        completion("1"),
        told({}),
        told({"1": -1.0, "2": -1.0}),
        told({"1": -1.0, "2": float("nan"), "3": -1.0, "4": 0.0, "5": 0.0}),
    ],
    ids=["no logprobs", "none of them", "some of them", "NaN"],
)
async def test_a_service_that_does_not_tell_them_is_an_error(answer: Answer) -> None:
    with pytest.raises(RewardServerError, match="sent no"):
        await expected(answer)


async def test_a_judge_that_can_write_none_of_them_is_an_error() -> None:
    with pytest.raises(RewardServerError, match=r"can't write any of \['1', '2'\]"):
        await expected(told({"1": -9999.0, "2": -9999.0}, written="x"), labels=[1, 2])

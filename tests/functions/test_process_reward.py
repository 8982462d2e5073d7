from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import fsum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.tiny_models import tokenizer as qwen
from reward_loop.errors import ConfigError, DataError, RewardServerError
from reward_loop.functions.chat_template import ChatTemplate
from reward_loop.functions.process_reward import ProcessReward, StepReduce, placed, reduced, split_steps
from reward_loop.functions.scored_conversation import ScoredModel
from reward_loop.functions.truncation import Fit
from reward_loop.scoring.vllm_client import VLLMRewardClient
from tests.functions.score_service import Rule, ScoreService, at, score_service

TAG = "<extra_0>"
TAG_ID = 3
PROMPT = [{"role": "user", "content": "What is six times seven?"}]
RESPONSE = "Six is 6.\n\n7 is seven \U0001f98a\n\nSo 42."


@asynccontextmanager
async def process_reward(
    rule: Rule | None = None, fit: Fit | None = None, **settings: Any
) -> AsyncGenerator[tuple[ProcessReward, ScoreService]]:
    async with score_service(prm=rule or at(TAG_ID)) as service:
        client = VLLMRewardClient(address=service.address, model_name="prm")
        model = ScoredModel("prm", ChatTemplate(qwen(), tag=TAG), client, fit)
        yield ProcessReward(model, TAG, **{"tokenizer": qwen(), **settings}), service


def expected(steps: list[str]) -> list[float]:
    messages = [*PROMPT, {"role": "assistant", "content": "".join(step + TAG for step in steps)}]
    ids = qwen().apply_chat_template(messages, tokenize=True, return_dict=False)
    return [row[1] for row in at(TAG_ID)(ids)]


STEPS = ["Six is 6.", "7 is seven \U0001f98a", "So 42."]


def test_the_separator_divides_a_response_into_steps_that_end_before_it() -> None:
    steps = split_steps(RESPONSE, "\n\n")
    assert [step.text for step in steps] == STEPS
    assert [RESPONSE[: step.end] for step in steps] == ["Six is 6.", RESPONSE[:-8], RESPONSE]


def test_blank_steps_are_none() -> None:
    assert [(step.text, step.end) for step in split_steps("\n\n a\n\n \n\n\n\nb\n\n", "\n\n")] == [(" a", 4), ("b", 12)]


@pytest.mark.parametrize("response", ["", " ", "\n\n", "\n\n\n"])
def test_a_response_of_nothing_else_is_one_step(response: str) -> None:
    [step] = split_steps(response, "\n\n")
    assert (step.text, step.end) == (response, len(response))


async def test_the_version_of_the_weights_is_told_where_the_server_knows_it() -> None:
    async with process_reward() as (reward, service):
        assert "rm_version" not in await reward(solution_str=RESPONSE, raw_prompt=PROMPT)
        service.versions["prm"] = 7
        assert (await reward(solution_str=RESPONSE, raw_prompt=PROMPT))["rm_version"] == 7


@given(st.text("ab \n"), st.sampled_from(["\n\n", "\n", "ab"]))
def test_steps_are_in_order_and_where_they_say(response: str, separator: str) -> None:
    start = 0
    for step in split_steps(response, separator):
        assert start <= step.end - len(step.text)
        assert response[step.end - len(step.text) : step.end] == step.text
        start = step.end


@pytest.mark.parametrize(("reduce", "score"), [("min", -2.0), ("last", 3.0), ("mean", 1.0)])
def test_steps_are_reduced_to_the_worst_the_last_or_the_mean(reduce: StepReduce, score: float) -> None:
    assert reduced([2.0, -2.0, 3.0], reduce) == score


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 9)), max_size=20))
def test_placing_loses_nothing(pairs: list[tuple[float, int]]) -> None:
    row = placed([score for score, _ in pairs], [token for _, token in pairs], 10)
    assert len(row) == 10
    for token in range(10):
        assert row[token] == pytest.approx(fsum(score for score, at_token in pairs if at_token == token), abs=1e-6)


async def test_each_step_has_its_score_at_the_token_with_which_it_ends() -> None:
    ids = [*qwen()(RESPONSE, add_special_tokens=False)["input_ids"], qwen().eos_token_id]
    async with process_reward() as (reward, service):
        result = await reward(solution_str=RESPONSE, raw_prompt=PROMPT, response_ids=ids)
    scores = expected(STEPS)
    assert result["rm_steps"] == pytest.approx(scores)
    assert len(result["score"]) == len(ids)
    found = {place: score for place, score in enumerate(result["score"]) if score}
    assert list(found.values()) == pytest.approx(scores)
    assert [qwen().decode(ids[: place + 1]).rstrip("\n") for place in found] == ["Six is 6.", RESPONSE[:-8], RESPONSE]
    assert result["rm_score"] == pytest.approx(min(scores))
    assert (result["rm_model"], result["rm_tokens"]) == ("prm", len(service.asked[0]["input"][0]))


@pytest.mark.parametrize("reduce", ["min", "last", "mean"])
async def test_a_rollout_that_came_as_text_gets_one_number(reduce: StepReduce) -> None:
    async with process_reward(reduce=reduce, tokenizer=None) as (reward, _):
        result = await reward(solution_str=RESPONSE, raw_prompt=PROMPT)
    assert result["score"] == result["rm_score"] == pytest.approx(reduced(expected(STEPS), reduce))
    assert result["rm_steps"] == pytest.approx(expected(STEPS))


async def test_a_response_without_text_has_its_score_at_its_last_token() -> None:
    async with process_reward() as (reward, _):
        result = await reward(solution_str="", raw_prompt=PROMPT, response_ids=[0, qwen().eos_token_id])
    assert result["score"] == [0.0, pytest.approx(expected([""])[0])]


async def test_a_model_with_one_label_gives_one_number_per_step() -> None:
    async with process_reward(lambda ids: [0.25] * list(ids).count(TAG_ID)) as (reward, _):
        result = await reward(solution_str=RESPONSE, raw_prompt=PROMPT)
    assert result["rm_steps"] == [0.25, 0.25, 0.25]


async def test_the_label_says_which_of_a_steps_scores_is_its_reward() -> None:
    async with process_reward(label=0) as (reward, _):
        result = await reward(solution_str=RESPONSE, raw_prompt=PROMPT)
    assert result["rm_steps"] == pytest.approx([-score for score in expected(STEPS)])


async def test_a_tag_in_the_response_is_no_step() -> None:
    async with process_reward() as (reward, _):
        result = await reward(solution_str=f"Perfect.{TAG}{TAG}\n\nSo 42.", raw_prompt=PROMPT)
    assert len(result["rm_steps"]) == 2


async def test_another_number_of_step_scores_is_the_servers_fault() -> None:
    async with process_reward(lambda ids: at(TAG_ID)(ids)[1:]) as (reward, _):
        with pytest.raises(RewardServerError, match=r"2 step scores for 3 steps; .*'<extra_0>' \(pooling STEP\)"):
            await reward(solution_str=RESPONSE, raw_prompt=PROMPT)


async def test_a_step_that_truncation_cuts_off_is_an_error_and_not_a_step_without_score() -> None:
    async with process_reward(fit=Fit(12, "truncate_left")) as (reward, service):
        with pytest.raises(DataError, match="takes 12 tokens, which a response of 3 steps exceeds"):
            await reward(solution_str=RESPONSE, raw_prompt=PROMPT)
        assert service.asked == []
        short = await reward(solution_str="42", raw_prompt=PROMPT)
    assert (short["rm_tokens"], len(short["rm_steps"])) == (12, 1)


async def test_placing_takes_the_policys_tokenizer() -> None:
    async with process_reward(tokenizer=None) as (reward, _):
        with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.path"):
            await reward(solution_str="42", raw_prompt=PROMPT, response_ids=[1, 2])


@pytest.mark.parametrize(("tag", "separator"), [("", "\n"), (TAG, "")])
async def test_an_empty_separator_or_tag_is_refused(tag: str, separator: str) -> None:
    model = ScoredModel("prm", ChatTemplate(qwen()), VLLMRewardClient())
    with pytest.raises(ConfigError, match="must not be empty"):
        ProcessReward(model, tag, separator)

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reward_loop.errors import ConfigError, DataError, RequestRejected, RewardServerError
from reward_loop.functions.chat_template import ChatTemplate
from reward_loop.functions.discriminative import DiscriminativeReward
from reward_loop.functions.scored_conversation import ScoredModel
from reward_loop.functions.truncation import Fit
from reward_loop.scoring.vllm_client import VLLMRewardClient
from tests.functions.reward_tokenizers import llama
from tests.functions.score_service import Rule, ScoreService, labels, last, score_service

PROMPT = [{"role": "user", "content": "What is six times seven?"}]


@asynccontextmanager
async def discriminative(
    rule: Rule, label: int = -1, **settings: Any
) -> AsyncGenerator[tuple[DiscriminativeReward, ScoreService]]:
    async with score_service(rm=rule) as service:
        client = VLLMRewardClient(address=service.address, model_name="rm")
        yield DiscriminativeReward(ScoredModel("rm", ChatTemplate(llama()), client, **settings), label), service


def ids_of(response: str) -> list[int]:
    messages = [*PROMPT, {"role": "assistant", "content": response}]
    return list(llama().apply_chat_template(messages, tokenize=True, return_dict=False))


async def test_the_reward_is_the_score_of_the_conversation() -> None:
    async with discriminative(last) as (reward, service):
        result = await reward(solution_str="It is 42.", raw_prompt=PROMPT)
    ids = ids_of("It is 42.")
    assert service.asked[0] == {"model": "rm", "input": [ids], "normalize": False}
    assert result == {"score": last(ids), "rm_score": last(ids), "rm_model": "rm", "rm_tokens": len(ids)}


async def test_the_version_of_the_weights_is_told_where_the_server_knows_it() -> None:
    async with discriminative(last) as (reward, service):
        assert "rm_version" not in await reward(solution_str="42", raw_prompt=PROMPT)
        service.versions["rm"] = 0
        assert (await reward(solution_str="42", raw_prompt=PROMPT))["rm_version"] == 0


@pytest.mark.parametrize(("label", "place"), [(-1, 2), (0, 0), (2, 2), (-3, 0)])
async def test_the_label_says_which_score_is_the_reward_and_all_are_told(label: int, place: int) -> None:
    async with discriminative(labels, label) as (reward, _):
        result = await reward(solution_str="42", raw_prompt=PROMPT)
    assert result["rm_labels"] == labels(ids_of("42"))
    assert result["score"] == result["rm_score"] == labels(ids_of("42"))[place]


async def test_probabilities_are_asked_for_where_the_configuration_says_so() -> None:
    async with discriminative(last, normalize=True) as (reward, service):
        await reward(solution_str="42", raw_prompt=PROMPT)
    assert service.asked[0]["normalize"] is True


@pytest.mark.parametrize("label", [1, 3, -4])
async def test_a_label_that_the_model_has_not_is_a_config_error(label: int) -> None:
    async with discriminative(last if label == 1 else labels, label) as (reward, _):
        with pytest.raises(ConfigError, match=f"scoring.label={label}, but the reward model rm has [13] labels"):
            await reward(solution_str="42", raw_prompt=PROMPT)


async def test_scores_per_token_are_no_reward() -> None:
    async with discriminative(lambda ids: [[last(ids)]] * len(ids)) as (reward, _):
        with pytest.raises(RewardServerError, match=r"not a number per label.*process"):
            await reward(solution_str="42", raw_prompt=PROMPT)


async def test_samples_that_are_asked_for_together_travel_together_and_a_bad_one_fails_alone() -> None:
    texts = [f"It is {number}." for number in range(40)]
    refused = 'Let me say "no".'
    assert 13 not in set().union(*map(ids_of, texts))
    async with discriminative(last) as (reward, service):
        good = [reward(solution_str=text, raw_prompt=PROMPT) for text in texts]
        refusal = reward(solution_str=f"{refused}{llama().decode([13])}", raw_prompt=PROMPT)
        unasked = reward(solution_str="42", raw_prompt=None)
        *results, rejected, missing = await asyncio.gather(*good, refusal, unasked, return_exceptions=True)
    assert [result["score"] for result in results if isinstance(result, dict)] == [last(ids_of(text)) for text in texts]
    assert isinstance(rejected, RequestRejected)
    assert isinstance(missing, DataError)
    assert len(service.asked) < len(texts)


async def test_a_long_conversation_is_an_error_or_loses_its_beginning() -> None:
    ids = ids_of("42")
    async with discriminative(last, fit=Fit(len(ids) - 5)) as (reward, service):
        with pytest.raises(DataError, match=f"{len(ids)} tokens.*takes {len(ids) - 5}"):
            await reward(solution_str="42", raw_prompt=PROMPT)
        assert service.asked == []
    async with discriminative(last, fit=Fit(len(ids) - 5, "truncate_left")) as (reward, _):
        result = await reward(solution_str="42", raw_prompt=PROMPT)
    assert result["score"] == last([ids[0], *ids[6:]])
    assert result["rm_tokens"] == len(ids) - 5


async def test_a_model_without_room_for_a_response_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="no room for a response"):
        ScoredModel("rm", ChatTemplate(llama()), VLLMRewardClient(), Fit(2))

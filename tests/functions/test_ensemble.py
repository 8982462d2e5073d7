from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from statistics import fmean, pstdev
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.tiny_models import tokenizer as qwen
from reward_loop.errors import ConfigError, RewardServerError
from reward_loop.functions.chat_template import ChatTemplate
from reward_loop.functions.discriminative import DiscriminativeReward
from reward_loop.functions.ensemble import EnsembleReward, Reduction
from reward_loop.functions.scored_conversation import ScoredModel
from reward_loop.scoring.vllm_client import VLLMRewardClient
from tests.functions.score_service import Rule, ScoreService, hangs, last, score_service

PROMPT = [{"role": "user", "content": "What is six times seven?"}]
SCORES = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-1e6, 1e6), min_size=1)
REDUCES = st.sampled_from(["mean", "min", "uncertainty"])


@given(SCORES)
def test_mean_and_deviation_are_those_of_statistics(scores: dict[str, float]) -> None:
    mean, std = Reduction("mean")(scores)
    assert mean == pytest.approx(fmean(scores.values()), abs=1e-6)
    assert std == pytest.approx(pstdev(scores.values()), rel=1e-6, abs=1e-5)


@given(SCORES)
def test_min_is_the_worst(scores: dict[str, float]) -> None:
    assert Reduction("min")(scores)[0] == min(scores.values())


@given(SCORES, st.floats(0, 10))
def test_uncertainty_is_the_mean_less_penalty_deviations(scores: dict[str, float], penalty: float) -> None:
    mean, std = Reduction("mean")(scores)
    reward, same = Reduction("uncertainty", penalty=penalty)(scores)
    assert same == std
    assert reward == pytest.approx(mean - penalty * std)


@given(SCORES, REDUCES)
def test_a_reward_is_not_above_the_best_score_and_the_order_of_models_does_not_matter(
    scores: dict[str, float], reduce: Literal["mean", "min", "uncertainty"]
) -> None:
    reward, std = Reduction(reduce)(scores)
    assert reward <= max(scores.values()) + 1e-6
    assert std >= 0
    assert Reduction(reduce)(dict(reversed(scores.items()))) == pytest.approx((reward, std))


@given(SCORES, REDUCES)
def test_models_of_one_mind_have_their_score_as_the_reward(
    scores: dict[str, float], reduce: Literal["mean", "min", "uncertainty"]
) -> None:
    one = dict.fromkeys(scores, 0.5)
    assert Reduction(reduce)(one) == (0.5, 0.0)


def test_a_weight_counts_like_so_many_models() -> None:
    weighted = Reduction(weights={"a": 2.0})({"a": 1.0, "b": 4.0})
    assert weighted == pytest.approx((2.0, pstdev([1.0, 1.0, 4.0])))


@asynccontextmanager
async def ensemble(reduction: Reduction | None = None, **rules: Rule) -> AsyncGenerator[tuple[EnsembleReward, ScoreService]]:
    async with score_service(**rules) as service:
        yield EnsembleReward([member(name, service.address) for name in rules], reduction), service


def member(name: str, address: str = "127.0.0.1:1") -> DiscriminativeReward:
    client = VLLMRewardClient(address=address, model_name=name)
    return DiscriminativeReward(ScoredModel(name, ChatTemplate(qwen()), client))


async def test_every_model_is_asked_and_told_of() -> None:
    async with ensemble(a=last, b=lambda ids: last(ids) + 1.0) as (reward, service):
        result = await reward(solution_str="42", raw_prompt=PROMPT)
    [ids] = service.asked[0]["input"]
    assert result == {
        "score": pytest.approx(last(ids) + 0.5),
        "rm_a": last(ids),
        "rm_b": last(ids) + 1.0,
        "rm_score": pytest.approx(last(ids) + 0.5),
        "rm_std": pytest.approx(0.5),
        "rm_tokens": 2 * len(ids),
    }


async def test_the_version_of_each_models_weights_is_told_where_its_server_knows_it() -> None:
    async with ensemble(a=last, b=last, c=last) as (reward, service):
        service.versions |= {"a": 3, "c": 0}
        result = await reward(solution_str="42", raw_prompt=PROMPT)
    assert {name: value for name, value in result.items() if "version" in name} == {"rm_a_version": 3, "rm_c_version": 0}


async def test_disagreement_lowers_the_reward() -> None:
    async with ensemble(Reduction("uncertainty", penalty=2.0), a=lambda _: 1.0, b=lambda _: 3.0) as (reward, _):
        assert (await reward(solution_str="42", raw_prompt=PROMPT))["score"] == 0.0


async def test_a_model_that_fails_ends_the_others_and_the_sample_with_its_name() -> None:
    async with ensemble(slow=hangs, odd=lambda _: [[1.0]]) as (reward, service):
        service.held = {"odd"}
        with pytest.raises(RewardServerError, match=r"^odd: .*not a number per label"):
            async with asyncio.timeout(60):
                await reward(solution_str="42", raw_prompt=PROMPT)
        async with asyncio.timeout(60):
            await service.hung_up.wait()


async def test_a_sample_that_is_given_up_is_given_up_by_all_models() -> None:
    async with ensemble(slow=hangs, slower=hangs) as (reward, service):
        task = asyncio.ensure_future(reward(solution_str="42", raw_prompt=PROMPT))
        async with asyncio.timeout(60):
            await service.hung.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await service.hung_up.wait()


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"c": 1.0}, r"names \['c'\], but the models are \['a', 'b'\]"),
        ({"a": -1.0}, "none may be negative"),
        ({"a": 0.0, "b": 0.0}, "nor all 0"),
    ],
)
def test_weights_that_weigh_nothing_are_refused(weights: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EnsembleReward([member("a"), member("b")], Reduction(weights=weights))


def test_a_model_must_not_be_called_like_what_else_is_told() -> None:
    with pytest.raises(ConfigError, match=r"\['std'\] can't be names"):
        EnsembleReward([member("a"), member("std")])
    with pytest.raises(ConfigError, match=r"\['a_version'\] can't be names"):
        EnsembleReward([member("a"), member("a_version")])

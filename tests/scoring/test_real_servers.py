"""The clients with real vLLM servers: the same numbers as transformers, and bad inputs that fail alone."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
import torch
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from reward_loop.errors import RequestRejected
from reward_loop.scoring.chat import chat_complete
from reward_loop.scoring.judging.expected_score import expected_score
from reward_loop.scoring.judging.verdict import choice_verdict, structured_verdict
from reward_loop.scoring.judging.votes import k_votes
from reward_loop.scoring.reward_client import ScoringRequest, ScoringResult
from reward_loop.scoring.vllm_client import VLLMRewardClient
from reward_loop.serving.server import VLLMServer
from tests.serving.inside.reference import Reference
from tests.vllm_servers import MAX_TOKENS

pytestmark = pytest.mark.vllm

TEXTS = ["yes", "What is six times seven? The answer is 42.", "Fuchs 狐 🦊", "seven " * 60, *map(str, range(40))]
QUESTION = [{"role": "user", "content": "What is six times seven, from 1 to 5? Answer with a digit."}]


def logits(server: VLLMServer) -> list[float]:
    reference = Reference(server.spec.model)
    return [float(reference.logits(text)[-1, 0]) for text in TEXTS]


async def test_samples_that_travel_together_score_as_in_transformers(reward_server: VLLMServer) -> None:
    client = VLLMRewardClient(base_url=reward_server.url, max_batch=16)
    reference = Reference(reward_server.spec.model)
    ids = [reference.ids(text) for text in TEXTS]
    by_text = await asyncio.gather(*map(client.score_one, TEXTS))
    by_ids = await asyncio.gather(*map(client.score_one, ids))
    for results in (by_text, by_ids):
        assert [result.score for result in results] == pytest.approx(logits(reward_server), abs=1e-4)


async def test_lists_and_requests_score_alike(reward_server: VLLMServer) -> None:
    client = VLLMRewardClient(base_url=reward_server.url, model_name=reward_server.spec.name, max_batch=16)
    expected = logits(reward_server)
    assert await client.score_batch(TEXTS, normalize=False) == pytest.approx(expected, abs=1e-4)
    assert await client.score_batch(TEXTS) == pytest.approx(torch.tensor(expected).sigmoid().tolist(), abs=1e-4)
    response, _ = await client.score(ScoringRequest(reward_server.spec.name, TEXTS[:3], "LAST", n_labels=1, normalize=False))
    assert list(response.scores) == pytest.approx(expected[:3], abs=1e-4)
    assert response.metadata["usage"]["prompt_tokens"] > 3
    assert isinstance(await client.get_model_version(), int)


async def test_inputs_that_the_server_refuses_fail_alone(reward_server: VLLMServer) -> None:
    client = VLLMRewardClient(base_url=reward_server.url)
    inputs: list[Any] = ["yes", "", "long " * 2 * MAX_TOKENS, "no"]
    first, empty, long, last = await asyncio.gather(*map(client.score_one, inputs), return_exceptions=True)
    assert isinstance(first, ScoringResult)
    assert isinstance(last, ScoringResult)
    assert isinstance(empty, RequestRejected)
    assert "is empty" in str(empty)
    assert isinstance(long, RequestRejected)
    assert str(MAX_TOKENS) in str(long)
    alone = await client.score_one("yes")
    assert first.score == pytest.approx(alone.score, abs=1e-4)


async def test_the_expected_score_is_that_of_the_judges_logits(judge_server: VLLMServer) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(judge_server.spec.model)
    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(judge_server.spec.model, dtype=torch.float32).eval()
    prompt = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)
    with torch.inference_mode():
        shares = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    labels = torch.tensor([shares[tokenizer.encode(str(digit), add_special_tokens=False)[0]] for digit in range(1, 6)])
    for sampling in ({}, {"structured_outputs": {"choice": list("12345")}}):
        result = await expected_score(QUESTION, tokenizer=tokenizer, base_url=judge_server.url, model="judge", sampling=sampling)
        mean = float((labels / labels.sum()) @ torch.arange(1.0, 6.0))
        assert result.score == pytest.approx(mean, abs=1e-4)
        assert result.mass == pytest.approx(1.0 if sampling else float(labels.sum()), rel=1e-3)


class Grade(BaseModel):
    score: Literal[1, 2, 3]
    right: bool


async def test_a_judge_that_babbles_gives_verdicts_of_the_form_that_was_asked_for(judge_server: VLLMServer) -> None:
    judge: Any = {"router_address": judge_server.url.removeprefix("http://")}  # a server alone answers as behind the router
    grade = await structured_verdict(QUESTION, Grade, sampling={"max_tokens": 60}, **judge)
    assert grade.value.score in (1, 2, 3)
    assert grade.tokens > 0
    assert (await choice_verdict(QUESTION, ["right", "wrong"], **judge)).value in ("right", "wrong")
    choice = {"max_tokens": 3, "temperature": 1.0, "structured_outputs": {"choice": ["1", "2"]}}
    votes = await k_votes(QUESTION, k=5, seed=3, read=int, sampling=choice, **judge)
    assert set(votes.counts) <= {1, 2}
    assert votes == await k_votes(QUESTION, k=5, seed=3, read=int, sampling=choice, **judge)


async def test_the_seeds_form_of_a_chat_completion_works(judge_server: VLLMServer) -> None:
    result = await chat_complete(
        router_address=judge_server.url.removeprefix("http://"),
        chat_complete_request={"messages": QUESTION, "temperature": 0.7, "top_p": 0.8, "max_tokens": 8},
    )
    assert result.choices[0].message.content is not None
    assert result.usage is not None
    assert 1 <= result.usage.completion_tokens <= 8

"""Rewards of real vLLM servers against transformers; the servers come from `tests.vllm_servers`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

from reward_loop.config import RewardLoopConfig
from reward_loop.functions.model_reward import model_reward
from reward_loop.serving.server import VLLMServer
from tests.fakes import config_of

pytestmark = pytest.mark.vllm

PROMPT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is six times seven?"}]
RESPONSES = [
    "It is 42.",
    "",
    "\u00fc \U0001f98a \u4e03",
    "6 * 7\n\nis 42\n\nso #### 42",
    "7" * 300,
    "42<|im_end|>\n<|im_start|>user\nIs it?",
]
TAG = "<extra_0>"


def load(path: str, trust_remote_code: bool = False) -> Any:
    return AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)


def config_for(server: VLLMServer, **scoring: Any) -> RewardLoopConfig:
    spec = server.spec
    rollout = {"max_model_len": spec.max_model_len}
    model = {"path": spec.model, "name": spec.name}
    policy = {"model": {"path": spec.model}}
    return config_of(
        reward_model={"enable": True, "model": model, "rollout": rollout, "scoring": scoring}, actor_rollout_ref=policy
    )


def address_of(server: VLLMServer) -> str:
    return server.url.removeprefix("http://")


def logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]  # type: ignore[no-any-return]


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of the conversation, put together by hand, with the response's words as ordinary text."""
    frame = [*PROMPT, {"role": "assistant", "content": "RESPONSE"}]
    before, after = tokenizer.apply_chat_template(frame, tokenize=False).split("RESPONSE")
    ids = list(tokenizer(before, add_special_tokens=False)["input_ids"])
    for number, step in enumerate(text.split(TAG)):
        ids += [tokenizer.convert_tokens_to_ids(TAG)] if number else []
        ids += tokenizer(step, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return [*ids, *tokenizer(after, add_special_tokens=False)["input_ids"]]


async def test_a_discriminative_reward_is_the_models_logit(reward_server: VLLMServer) -> None:
    path = reward_server.spec.model
    tokenizer, model = load(path), AutoModelForSequenceClassification.from_pretrained(path).eval()
    reward = model_reward(config_for(reward_server), address_of(reward_server), load)
    for response in RESPONSES:
        result = await reward(solution_str=response, raw_prompt=PROMPT)
        ids = plain_ids(tokenizer, response)
        assert result["rm_tokens"] == len(ids)
        assert result["score"] == pytest.approx(logits(model, ids).item(), abs=1e-4)


async def test_a_long_response_is_scored_by_its_end(reward_server: VLLMServer) -> None:
    path, limit = reward_server.spec.model, reward_server.spec.max_model_len
    assert limit is not None
    tokenizer, model = load(path), AutoModelForSequenceClassification.from_pretrained(path).eval()
    reward = model_reward(config_for(reward_server, too_long="truncate_left"), address_of(reward_server), load)
    result = await reward(solution_str="7 " * limit, raw_prompt=PROMPT)
    expected = logits(model, plain_ids(tokenizer, "7 " * limit)[-limit:]).item()
    assert (result["score"], result["rm_tokens"]) == (pytest.approx(expected, abs=1e-4), limit)


async def test_each_steps_reward_is_its_tags_logit(process_server: VLLMServer) -> None:
    path = process_server.spec.model
    tokenizer, model = load(path), AutoModelForTokenClassification.from_pretrained(path).eval()
    reward = model_reward(config_for(process_server), address_of(process_server), load)
    for response in RESPONSES:
        tokens = [*tokenizer(response, split_special_tokens=True)["input_ids"], tokenizer.eos_token_id]
        result = await reward(solution_str=response, raw_prompt=PROMPT, response_ids=tokens)
        ids = plain_ids(tokenizer, response.replace("\n\n", TAG) + TAG)
        tag = tokenizer.convert_tokens_to_ids(TAG)
        expected = [logits(model, ids)[place, -1].item() for place, token in enumerate(ids) if token == tag]
        assert result["rm_steps"] == pytest.approx(expected, abs=1e-4)
        assert len(result["score"]) == len(tokens)
        assert sum(result["score"]) == pytest.approx(sum(expected), abs=1e-3)

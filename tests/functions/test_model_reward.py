from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from recipes.tiny_models import judge, process_model, reward_model
from recipes.tiny_models import tokenizer as qwen
from reward_loop.config import RewardLoopConfig
from reward_loop.errors import ConfigError, DataError, RequestRejected, WeightSyncError
from reward_loop.functions.custom import adapt
from reward_loop.functions.model_reward import model_reward
from reward_loop.managers.naive import NaiveRewardManager
from tests.fakes import config_of, tiny_tokenizer, token_batch
from tests.functions.score_service import ScoreService, at, last, score_service

PROMPT = [{"role": "user", "content": "What is six times seven?"}]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    reward_model(path / "rm")
    process_model(path / "prm")
    judge(path / "judge")
    return path


def load(path: str, trust_remote_code: bool) -> Any:
    return AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)


def served(path: Path, tokenizer_path: str | None = None, **settings: Any) -> RewardLoopConfig:
    """A config of one reward model that is served as "m"."""
    return config_of(
        reward_model={"enable": True, "model": {"path": str(path), "name": "m"}, **settings},
        actor_rollout_ref={"model": {"path": tokenizer_path}},
    )


def manager_of(config: RewardLoopConfig, service: ScoreService) -> NaiveRewardManager:
    function = adapt(model_reward(config, service.address, load), {})
    return NaiveRewardManager(config, tiny_tokenizer(), function, service.address)


async def test_any_manager_scores_with_a_discriminative_model_as_with_a_custom_function(models: Path) -> None:
    batch = token_batch(["It is 42.", "41"], raw_prompt=[PROMPT, PROMPT])
    async with score_service(m=last) as service:
        manager = manager_of(served(models / "rm"), service)
        results = [await manager.run_single(batch[row : row + 1]) for row in range(2)]
        await manager.aclose()
    assert service.asked[0]["pooling_type"] == "LAST"
    for text, result in zip(["It is 42.", "41"], results, strict=True):
        messages = [*PROMPT, {"role": "assistant", "content": text}]
        ids = load(str(models / "rm"), False).apply_chat_template(messages, tokenize=True, return_dict=False)
        assert result["reward_score"] == last(ids)
        assert result["reward_extra_info"] == {"score": last(ids), "rm_score": last(ids), "rm_model": "m", "rm_tokens": len(ids)}


async def test_a_process_model_rewards_tokens(models: Path, tokenizer_path: str) -> None:
    batch = token_batch(["6 * 7\n\nis 42"], raw_prompt=[PROMPT])
    async with score_service(m=at(3)) as service:
        manager = manager_of(served(models / "prm", tokenizer_path), service)
        result = await manager.run_single(batch)
        await manager.aclose()
    assert service.asked[0]["pooling_type"] == "STEP"
    steps = result["reward_extra_info"]["rm_steps"]
    assert len(steps) == 2
    responses = batch.tensor("responses")
    assert responses is not None
    assert len(result["reward_score"]) == responses.shape[1]
    assert [score for score in result["reward_score"] if score] == steps


async def test_weights_that_are_too_old_fail_the_sample_where_the_configuration_says_so(models: Path) -> None:
    sync = {"max_staleness": 1, "on_stale": "raise"}
    async with score_service(m=last) as service:
        reward = model_reward(served(models / "rm", sync=sync), service.address, load)
        for version in (5, 4):
            service.versions["m"] = version
            assert (await reward(solution_str="42", raw_prompt=PROMPT))["rm_version"] == version
        service.versions["m"] = 3
        with pytest.raises(WeightSyncError, match="max_staleness=1"):
            await reward(solution_str="42", raw_prompt=PROMPT)


async def test_several_models_are_an_ensemble_each_with_its_settings(models: Path) -> None:
    named = {"a": {"path": str(models / "rm")}, "b": {"path": str(models / "rm"), "scoring": {"normalize": True}}}
    config = config_of(reward_model={"enable": True, "models": named, "ensemble": {"reduce": "min"}})
    async with score_service(a=last, b=lambda ids: last(ids) - 1.0) as service:
        result = await model_reward(config, service.address, load)(solution_str="42", raw_prompt=PROMPT)
    assert result["score"] == result["rm_b"] == result["rm_a"] - 1.0
    assert {request["model"]: request["normalize"] for request in service.asked} == {"a": False, "b": True}


async def test_one_named_model_is_that_model(models: Path) -> None:
    config = config_of(reward_model={"enable": True, "models": {"a": {"path": str(models / "rm")}}})
    async with score_service(a=last) as service:
        assert (await model_reward(config, service.address, load)(solution_str="42", raw_prompt=PROMPT))["rm_model"] == "a"


@pytest.mark.parametrize(("settings", "limit"), [({}, 1024), ({"rollout": {"max_model_len": 40}}, 40)])
async def test_a_conversation_may_be_as_long_as_the_model_takes(models: Path, settings: dict[str, Any], limit: int) -> None:
    async with score_service(m=last) as service:
        reward = model_reward(served(models / "rm", **settings), service.address, load)
        with pytest.raises(DataError, match=f"the reward model takes {limit}"):
            await reward(solution_str="7" * 2000, raw_prompt=PROMPT)
        shorter = model_reward(served(models / "rm", scoring={"too_long": "truncate_left"}, **settings), service.address, load)
        assert (await shorter(solution_str="7" * 2000, raw_prompt=PROMPT))["rm_tokens"] == limit


async def test_what_the_server_refuses_is_the_samples_error(models: Path) -> None:
    async with score_service(m=last) as service:
        reward = model_reward(served(models / "rm"), service.address, load)
        with pytest.raises(RequestRejected, match="out of the vocabulary"):
            await reward(solution_str=qwen().decode([13]), raw_prompt=PROMPT)


async def test_a_batch_without_prompts_is_an_error_that_names_the_column(models: Path) -> None:
    async with score_service(m=last) as service:
        manager = manager_of(served(models / "rm"), service)
        with pytest.raises(DataError, match="raw_prompt"):
            await manager.run_single(token_batch(["42"]))
        await manager.aclose()


def test_a_model_that_writes_text_needs_a_function(models: Path) -> None:
    with pytest.raises(ConfigError, match=r"m writes text.*custom_reward_function\.path"):
        model_reward(served(models / "judge"), "127.0.0.1:1", load)


def test_a_process_model_is_no_member_of_an_ensemble(models: Path) -> None:
    named = {"a": {"path": str(models / "rm")}, "b": {"path": str(models / "prm")}}
    with pytest.raises(ConfigError, match=r"process models \['b'\]"):
        model_reward(config_of(reward_model={"enable": True, "models": named}), "127.0.0.1:1", load)


def test_a_kind_that_is_set_wins_over_the_architecture(models: Path) -> None:
    config = config_of(reward_model={"model": {"path": str(models / "rm"), "kind": "generative"}})
    with pytest.raises(ConfigError, match="writes text"):
        model_reward(config, "127.0.0.1:1", load)


def test_no_model_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"reward_model\.model\.path"):
        model_reward(RewardLoopConfig(), "127.0.0.1:1", load)


def test_a_step_tag_that_is_no_token_is_a_config_error(models: Path) -> None:
    with pytest.raises(ConfigError, match="'####' is no added token"):
        model_reward(served(models / "prm", scoring={"step_tag": "####"}), "127.0.0.1:1", load)

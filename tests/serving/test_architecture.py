"""What vLLM would serve as nonsense is refused, and a step tag is one token."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipes import tiny_models
from reward_loop.errors import ConfigError
from reward_loop.serving.architecture import architecture_of, check_kind, scores_tokens_only, step_tag_id
from tests.serving.models import model_dir


def test_the_first_architecture_counts(tmp_path: Path) -> None:
    assert architecture_of(model_dir(tmp_path / "m", "Qwen2ForProcessRewardModel")) == "Qwen2ForProcessRewardModel"


def test_a_configuration_that_names_no_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="names no architecture"):
        architecture_of(str(tmp_path))


@pytest.mark.parametrize("kind", ["discriminative", "process"])
def test_a_language_model_without_a_head_can_not_score(kind: str) -> None:
    with pytest.raises(ConfigError, match="has no head that scores"):
        check_kind("m", "Qwen2ForCausalLM", kind, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["convert", "hf_overrides", "hf-overrides"])
def test_a_language_model_whose_head_is_said_can(option: str) -> None:
    check_kind("m", "Qwen2ForCausalLM", "discriminative", {option: "x"})


def test_a_classifier_writes_no_text() -> None:
    with pytest.raises(ConfigError, match="writes no text: set its kind to discriminative"):
        check_kind("m", "Qwen2ForSequenceClassification", "generative", {})


def test_reward_models_that_vllm_scores_by_token_are_known() -> None:
    assert scores_tokens_only("Qwen2ForRewardModel")
    assert not scores_tokens_only("Qwen2ForProcessRewardModel")
    assert not scores_tokens_only("Qwen2ForSequenceClassification")


def test_a_step_tag_is_one_token(tmp_path: Path) -> None:
    tokenizer = tiny_models.tokenizer()
    tokenizer.save_pretrained(tmp_path)
    expected = tokenizer.convert_tokens_to_ids(tiny_models.STEP_TAG)
    assert step_tag_id(str(tmp_path), tiny_models.STEP_TAG) == expected
    with pytest.raises(ConfigError, match=r"scoring\.step_tag='####' is \d tokens of .*exactly one"):
        step_tag_id(str(tmp_path), "####")


def test_a_tokenizer_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be loaded"):
        step_tag_id(str(tmp_path / "none"), "x")

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reward_loop.errors import ConfigError
from reward_loop.scoring.model_kind import context_length, kind_of, read_model_config, resolve_kind


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("LlamaForSequenceClassification", "discriminative"),
        ("Qwen2ForRewardModel", "discriminative"),
        ("InternLM2ForRewardModel", "discriminative"),
        ("LlamaForRewardModelWithGating", "discriminative"),
        ("Qwen2ForProcessRewardModel", "process"),
        ("Qwen2ForTokenClassification", "process"),
        ("Qwen3ForCausalLM", "generative"),
        ("Gemma3ForConditionalGeneration", "generative"),
        ("GPT2LMHeadModel", "generative"),
    ],
)
def test_the_architecture_says_what_a_model_gives(architecture: str, kind: str) -> None:
    assert kind_of([architecture]) == kind
    assert kind_of(["Odd", architecture]) == kind


@pytest.mark.parametrize("architectures", [[], ["BertModel"]])
def test_an_architecture_that_does_not_tell_is_an_error_that_names_the_setting(architectures: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"don't say.*reward_model\.model\.kind"):
        kind_of(architectures)


def test_a_kind_that_is_set_needs_no_model() -> None:
    assert resolve_kind("process", "nowhere/at-all") == "process"


def test_auto_reads_the_configuration_in_the_models_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForSequenceClassification"]}))
    assert resolve_kind("auto", str(tmp_path)) == "discriminative"


@pytest.mark.parametrize(("text", "said"), [(None, "no config.json"), ("{", "no config.json"), ("[]", "must hold an object")])
def test_a_directory_without_a_configuration_is_an_error(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_model_config(str(tmp_path))


def test_a_path_that_is_no_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no model configuration could be read from '.*none'"):
        read_model_config(str(tmp_path / "none"))


def test_the_context_length_is_the_shortest_that_is_told() -> None:
    assert context_length({"max_position_embeddings": 1024, "seq_length": 512, "n_positions": None}) == 512
    assert context_length({"text_config": {"max_position_embeddings": 7}, "max_position_embeddings": 9}) == 7
    assert context_length({}) is None

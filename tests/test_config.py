"""The schema: defaults, limits and the rules that span settings."""

import pickle
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from reward_loop.config import (
    AlgorithmConfig,
    FixedReward,
    RewardLoopConfig,
    RewardManagerConfig,
    RewardModelConfig,
)
from reward_loop.config_rollout import RolloutConfig
from reward_loop.config_spellings import SCHEMA


def test_the_defaults_are_those_of_verl() -> None:
    model = RewardLoopConfig().reward_model
    assert (model.num_workers, model.n_gpus_per_node, model.nnodes, model.enable) == (8, 8, 0, False)
    assert (model.rollout.tensor_model_parallel_size, model.rollout.max_num_batched_tokens) == (2, 8192)
    assert (model.reward_manager.source, model.reward_manager.name) == ("register", "naive")


def test_a_failed_sample_raises_unless_told_otherwise() -> None:
    assert RewardLoopConfig().reward_model.on_error == "raise"


def test_a_section_reads_like_a_dictconfig() -> None:
    config = RewardLoopConfig()
    assert config["reward_model"].get("num_workers", 1) == 8
    assert config.reward_model.get("max_rpm") is None
    assert config.reward_model.get("max_rpm", 60) == 60
    assert "num_workers" in config.reward_model
    assert "max_rpm" not in config.reward_model


def test_methods_and_validators_are_no_settings() -> None:
    assert "get" not in RewardLoopConfig()
    assert RewardLoopConfig().get("model_fields", "absent") == "absent"


def test_reading_an_unknown_setting_says_which_there_are() -> None:
    with pytest.raises(KeyError, match="nodes is not in RewardManagerConfig, which has source, name, module"):
        RewardManagerConfig()["nodes"]


def test_a_config_can_not_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RewardLoopConfig().reward_model.num_workers = 3


def test_two_configs_do_not_share_their_open_settings() -> None:
    RewardLoopConfig().reward_model.reward_kwargs["max_resp_len"] = 1
    RewardLoopConfig().reward_model.rollout.engine_kwargs["vllm"] = {}
    assert RewardLoopConfig().reward_model.reward_kwargs == {}
    assert RewardLoopConfig().reward_model.rollout.engine_kwargs == {}


def test_a_config_pickles() -> None:
    config = RewardLoopConfig.model_validate(
        {"reward_model": {"on_error": {"value": -1}, "reward_manager": "dapo", "reward_kwargs": {"a": [1]}}}
    )
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "low", None])
def test_a_fixed_reward_is_a_finite_number(value: object) -> None:
    with pytest.raises(ValidationError, match="a finite number"):
        RewardModelConfig.model_validate({"on_error": {"value": value}})


def test_a_fixed_reward_is_typed() -> None:
    assert RewardModelConfig.model_validate({"on_error": {"value": -1}}).on_error == FixedReward(value=-1.0)


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        (RewardModelConfig, {"num_workers": 0}),
        (RewardModelConfig, {"timeout_s": 0}),
        (RewardModelConfig, {"timeout_s": float("inf")}),
        (RewardModelConfig, {"retry": {"attempts": 0}}),
        (RewardModelConfig, {"retry": {"backoff_s": -1}}),
        (RewardModelConfig, {"executor": "threads"}),
        (RewardModelConfig, {"on_error": "zero"}),
        (RewardModelConfig, {"numworkers": 1}),
        (RolloutConfig, {"gpu_memory_utilization": 1.5}),
    ],
)
def test_values_outside_their_limits_are_refused(section: type[RewardLoopConfig], settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        section.model_validate(settings)


def test_an_enabled_reward_model_needs_a_path() -> None:
    with pytest.raises(ValidationError, match="name the model or disable it"):
        RewardModelConfig(enable=True)


@pytest.mark.parametrize("settings", [{"name": "Mine", "module": {"path": "m.py"}}, {"module": {"path": "m.py", "name": "Mine"}}])
def test_the_class_to_import_ends_up_in_name(settings: dict[str, Any]) -> None:
    assert RewardManagerConfig.model_validate({"source": "importlib", **settings}).name == "Mine"


def test_of_two_class_names_the_manager_s_own_wins() -> None:
    module = {"path": "m.py", "name": "custom_reward_manager"}
    manager = RewardManagerConfig.model_validate({"source": "importlib", "name": "Mine", "module": module})
    assert manager.name == "Mine"


@pytest.mark.parametrize("settings", [{"name": "Mine"}, {"module": {"path": "m.py"}}])
def test_an_import_needs_a_module_and_a_class(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RewardManagerConfig.model_validate({"source": "importlib", **settings})


def test_a_registered_manager_may_carry_verl_s_unused_module_name() -> None:
    assert RewardManagerConfig.model_validate({"name": "dapo", "module": {"name": "custom_reward_manager"}}).name == "dapo"


@pytest.mark.parametrize("keys", [("a",), None])
def test_gdpo_weights_match_their_keys(keys: tuple[str, ...] | None) -> None:
    with pytest.raises(ValidationError, match="give one per key"):
        AlgorithmConfig(gdpo_reward_keys=keys, gdpo_reward_weights=(1.0, 2.0))


def test_every_setting_is_documented() -> None:
    sections = [RewardLoopConfig()]
    undocumented: list[str] = []
    for section in sections:
        fields = type(section).model_fields
        undocumented += [f"{type(section).__name__}.{name}" for name, field in fields.items() if not field.description]
        sections += [section[name] for name in fields if hasattr(section[name], "model_fields_set")]
    assert undocumented == []
    assert len(sections) > 10
    assert len(SCHEMA) > 60


def test_the_schema_needs_neither_omegaconf_nor_torch() -> None:
    code = "import sys, reward_loop.config; print(sorted({'omegaconf', 'torch', 'ray', 'yaml'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"

"""Loading: how layers merge, and where each value came from."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from reward_loop.config import FixedReward, RewardLoopConfig
from reward_loop.config_layers import LayerLike
from reward_loop.config_loading import ConfigValue, explain_config, load_config

PRESETS = Path(__file__).resolve().parents[1] / "configs"


def written(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def explained(key: str, *layers: LayerLike, overrides: list[str] | None = None) -> ConfigValue:
    return next(value for value in explain_config(*layers, overrides=overrides or []) if value.key == key)


def test_nothing_gives_the_defaults() -> None:
    assert load_config() == RewardLoopConfig()


def test_later_layers_win_and_overrides_win_last(tmp_path: Path) -> None:
    path = written(tmp_path, "reward_model: {num_workers: 2, max_threads: 2, max_concurrency: 2}")
    config = load_config(
        path, {"reward_model": {"max_threads": 3, "max_concurrency": 3}}, overrides=["reward_model.max_concurrency=4"]
    )
    model = config.reward_model
    assert (model.num_workers, model.max_threads, model.max_concurrency) == (2, 3, 4)


def test_manager_settings_merge_key_by_key() -> None:
    config = load_config(
        {"reward_model": {"reward_kwargs": {"max_resp_len": 10, "overlong_buffer_cfg": {"len": 4, "log": True}}}},
        {"reward": {"reward_kwargs": {"overlong_buffer_cfg": {"len": 5}}}},
    )
    assert config.reward_model.reward_kwargs == {"max_resp_len": 10, "overlong_buffer_cfg": {"len": 5, "log": True}}


def test_a_config_and_a_dictconfig_are_layers_too() -> None:
    first = load_config({"reward_model": {"num_workers": 2, "on_error": {"value": -1}}})
    config = load_config(first, OmegaConf.create({"reward": {"max_threads": 3}}))
    assert (config.reward_model.num_workers, config.reward_model.max_threads) == (2, 3)
    assert config.reward_model.on_error == FixedReward(value=-1.0)


def test_a_config_on_top_changes_only_what_it_sets() -> None:
    on_top = RewardLoopConfig.model_validate({"reward_model": {"max_threads": 3}})
    config = load_config({"reward_model": {"num_workers": 2}}, on_top)
    assert (config.reward_model.num_workers, config.reward_model.max_threads) == (2, 3)


def test_loading_leaves_the_caller_s_mapping_alone() -> None:
    layer = {"reward_model": {"reward_manager": "dapo", "reward_kwargs": {"a": [1]}}}
    load_config(layer, overrides=["reward_model.reward_kwargs.b=2"]).reward_model.reward_kwargs["a"].append(2)
    assert layer == {"reward_model": {"reward_manager": "dapo", "reward_kwargs": {"a": [1]}}}


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_overrides_take_hydra_s_prefixes(prefix: str) -> None:
    config = load_config(overrides=[f"{prefix}reward_model.reward_kwargs.max_resp_len=7"])
    assert config.reward_model.reward_kwargs == {"max_resp_len": 7}


def test_override_values_are_yaml() -> None:
    config = load_config(
        overrides=[
            "reward_model.timeout_s=null",
            "algorithm.gdpo_reward_keys=[accuracy, format]",
            "reward_model.retry={attempts: 3, backoff_s: 1e-1}",
            "custom_reward_function.path='my reward=.py'",
        ]
    )
    assert config.reward_model.timeout_s is None
    assert config.algorithm.gdpo_reward_keys == ("accuracy", "format")
    assert (config.reward_model.retry.attempts, config.reward_model.retry.backoff_s) == (3, 0.1)
    assert config.custom_reward_function.path == "my reward=.py"


def test_an_error_policy_replaces_another() -> None:
    fixed, masked = "reward_model.on_error.value=-1", "reward_model.on_error=mask"
    assert load_config(overrides=[fixed]).reward_model.on_error == FixedReward(value=-1.0)
    assert load_config({"reward_model": {"on_error": "mask"}}, overrides=[fixed]).reward_model.on_error == FixedReward(value=-1.0)
    assert load_config({"reward": {"on_error": {"value": 1}}}, overrides=[masked]).reward_model.on_error == "mask"


def test_null_puts_a_setting_or_a_section_back_to_its_default() -> None:
    layer = {"reward_model": {"num_workers": 2, "cache": {"enable": True}}, "custom_reward_function": {"path": "f.py"}}
    config = load_config(layer, overrides=["reward.num_workers=null", "reward.cache=null", "custom_reward_function=null"])
    assert config == load_config()


def test_interpolations_see_the_whole_trainer_config() -> None:
    config = load_config(
        {
            "data": {"max_response_length": 512},
            "reward_model": {"reward_kwargs": {"max_resp_len": "${data.max_response_length}", "all": ["${data}"]}},
        },
        overrides=["data.max_response_length=1024"],
    )
    assert config.reward_model.reward_kwargs == {"max_resp_len": 1024, "all": [{"max_response_length": 1024}]}


def test_a_whole_section_may_be_an_interpolation() -> None:
    config = load_config({"data": {"shared": {"attempts": 5}}, "reward_model": {"retry": "${data.shared}"}})
    assert config.reward_model.retry.attempts == 5


def test_a_home_directory_is_expanded_and_an_empty_file_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "# nothing\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_config("~/run.yaml") == load_config()


@pytest.mark.parametrize("name", ["naive", "dapo", "gdpo", "ray"])
def test_every_preset_loads_and_combines_with_ray(name: str) -> None:
    config = load_config(PRESETS / f"{name}.yaml", PRESETS / "ray.yaml")
    assert config.reward_model.executor == "ray"
    assert config.reward_model.reward_manager.name == ("naive" if name == "ray" else name)


def test_each_value_says_where_it_came_from(tmp_path: Path) -> None:
    path = written(tmp_path, "reward: {num_workers: 2, timeout: 9}", "dapo.yaml")
    overrides = ["reward_model.timeout_s=8"]
    assert explained("reward_model.num_workers", path, overrides=overrides).source == "dapo.yaml (as reward.num_workers)"
    assert explained("reward_model.timeout_s", path, overrides=overrides) == ConfigValue(
        "reward_model.timeout_s", 8.0, "override"
    )
    assert explained("reward_model.max_threads", path) == ConfigValue("reward_model.max_threads", 64, "default")


def test_open_settings_are_explained_key_by_key(tmp_path: Path) -> None:
    path = written(tmp_path, "reward_model: {reward_kwargs: {a: 1, b: {c: 2}}}")
    keys = "reward_model.reward_kwargs.a", "reward_model.reward_kwargs.b.c"
    assert [explained(key, path, overrides=[f"{keys[0]}=3"]) for key in keys] == [
        ConfigValue(keys[0], 3, "override"),
        ConfigValue(keys[1], 2, "run.yaml"),
    ]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "num_workers": st.integers(1, 99),
            "executor": st.sampled_from(["local", "ray"]),
            "timeout_s": st.none() | st.floats(1, 1e6),
            "on_error": st.sampled_from(["raise", "mask"]) | st.fixed_dictionaries({"value": st.floats(-9, 9)}),
            "reward_kwargs": st.dictionaries(st.sampled_from("abc"), st.integers() | st.booleans()),
        },
    ),
)
def test_either_tree_gives_the_same_config_and_loading_again_changes_nothing(settings: dict[str, Any]) -> None:
    config = load_config({"reward_model": settings})
    assert load_config({"reward": settings}) == config
    assert load_config(config) == config
    assert load_config(config.model_dump()) == config


def test_a_mapping_may_have_dotted_keys() -> None:
    layer = {"reward.num_workers": 2, "trainer.save_freq": 1, "data.seed": 1, "reward_model": {"cache.enable": True}}
    config = load_config(layer)
    assert (config.reward_model.num_workers, config.reward_model.cache.enable) == (2, True)
    assert explained("reward_model.num_workers", layer).source == "mapping 1 (as reward.num_workers)"


@pytest.mark.parametrize("text", ["A:", "####", "a: b"])
def test_an_override_that_yaml_would_take_for_a_mapping_or_a_comment_is_text(text: str) -> None:
    config = load_config(overrides=[f"custom_reward_function.reward_kwargs.marker={text}"])
    assert config.custom_reward_function.reward_kwargs == {"marker": text}


def test_named_models_keep_their_order_when_one_is_changed() -> None:
    models = {"zeta": {"path": "a"}, "alpha": {"path": "b"}}
    config = load_config({"reward_model": {"models": models}}, overrides=["reward_model.models.zeta.path=c"])
    assert [(name, model.path) for name, model in config.reward_model.models.items()] == [("zeta", "c"), ("alpha", "b")]

"""Bad configs: one error that names every problem as the user wrote it."""

from pathlib import Path
from typing import Any

import pytest

from reward_loop.config_layers import LayerLike
from reward_loop.config_loading import load_config
from reward_loop.errors import ConfigError


def written(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def error_of(*layers: LayerLike, overrides: list[str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(*layers, overrides=overrides or [])
    return str(caught.value)


def test_every_problem_is_listed_with_key_value_source_and_remedy(tmp_path: Path) -> None:
    path = written(tmp_path, "reward: {num_workers: 0, retry: {attempts: two}}", "dapo.yaml")
    layer = {"reward_model": {"executor": "threads", "timeout": -1, "rollout": {"top_p": 2, "seed": 1.5}}}
    overrides = ["reward_model.on_error=zero", "algorithm.gdpo_reward_keys=acc", "reward_model.cache.enable=[]"]
    assert error_of(path, layer, overrides=overrides) == "\n  ".join(
        [
            "9 settings are wrong:",
            "reward_model.executor='threads' (mapping 2): must be 'local' or 'ray'",
            "reward.num_workers=0 (dapo.yaml): must be at least 1",
            'reward_model.on_error=\'zero\' (override): must be "raise", "mask" or {value: a finite number}',
            "reward_model.timeout=-1 (mapping 2): must be more than 0.0, or null",
            "reward.retry.attempts='two' (dapo.yaml): must be a whole number",
            "reward_model.cache.enable=[] (override): must be true or false",
            "reward_model.rollout.seed=1.5 (mapping 2): must be a whole number",
            "reward_model.rollout.top_p=2 (mapping 2): must be at most 1.0",
            "algorithm.gdpo_reward_keys='acc' (override): must be a list, such as [a, b], or null",
        ]
    )


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("reward_model.num_worker=1", "did you mean reward_model.num_workers?"),
        ("reward.num_worker=1", "did you mean reward.num_workers?"),
        ("reward.reward_model.modelpath=rm", "did you mean reward.reward_model.model_path?"),
        ("reward_model.cahce.enable=true", "did you mean reward_model.cache?"),
        ("reward_model.cache.enabled=true", "did you mean reward_model.cache.enable?"),
        ("reward_modle.enable=true", "did you mean reward_model?"),
        ("custom_reward_fn.path=f.py", "did you mean custom_reward_function?"),
        ("trainer.experiment_nam=x", "did you mean trainer.experiment_name?"),
        ("actor_rollout_ref.model.tokeniser_path=x", "did you mean actor_rollout_ref.model.tokenizer_path?"),
        ("algorithm.gdpo_reward_key=[a]", "did you mean algorithm.gdpo_reward_keys?"),
        ("reward_model.retry.xyz=1", "known here: attempts, backoff_s, max_backoff_s"),
        ("reward_model.path=rm", "did you mean reward_model.model.path?"),
        ("reward.model_path=rm", "did you mean reward.reward_model.model_path?"),
        ("num_workers=1", "did you mean reward_model.num_workers?"),
        ("dta.seed=1", "did you mean data?"),
        ("xyz=1", "known here: reward_model, custom_reward_function, actor_rollout_ref"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(override: str, remedy: str) -> None:
    message = error_of(overrides=[override])
    assert "(override): unknown key; " + remedy in message
    assert override.partition("=")[0].split(".")[0] in message


@pytest.mark.parametrize(
    "key",
    ["trainer.save_freq", "algorithm.gamma", "actor_rollout_ref.actor.strategy", "actor_rollout_ref.model.lora_rank"],
)
def test_other_keys_of_the_trainer_are_ignored_silently(key: str, caplog: pytest.LogCaptureFixture) -> None:
    assert load_config(overrides=[f"{key}=1"]) == load_config()
    assert not caplog.records


def test_a_value_in_the_place_of_a_section_is_refused() -> None:
    message = "reward_model.retry=3 (mapping 1): needs a mapping with some of the keys attempts, backoff_s, max_backoff_s"
    assert error_of({"reward_model": {"retry": 3}}) == message


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"reward_model": {"enable": True}}, "reward_model.model.path=None (default): is needed"),
        ({"reward": {"reward_model": {"enable": True}}}, "reward.reward_model.model_path=None (default): is needed"),
        (
            {"reward": {"reward_manager": {"source": "importlib", "name": "Mine"}}},
            "reward.reward_manager.module.path=None (default): is required with source=importlib",
        ),
        (
            {"algorithm": {"gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": [1]}},
            "algorithm.gdpo_reward_weights=[1] (mapping 1): has 1 weights for 2 gdpo_reward_keys; give one per key",
        ),
    ],
)
def test_rules_that_span_settings_name_the_one_to_change(layer: dict[str, Any], message: str) -> None:
    assert error_of(layer).startswith(message)


def test_a_missing_value_is_named_where_it_is_read() -> None:
    assert error_of({"custom_reward_function": {"path": "???"}}) == (
        "custom_reward_function.path='???' (mapping 1): a value is missing; give one"
    )
    served = {"reward_model": {"enable": True, "model": {"path": "rm"}, "rollout": {"name": "???"}}}
    assert error_of(served).startswith("reward_model.rollout.name='???' (mapping 1)")


def test_a_missing_value_may_come_from_any_other_layer() -> None:
    layer = {"custom_reward_function": {"path": "???"}}
    filled = {"reward": {"custom_reward_function": {"path": "f.py"}}}
    assert load_config(layer, filled) == load_config(filled, layer) == load_config(filled)


def test_an_interpolation_that_leads_nowhere_is_named() -> None:
    message = error_of({"reward_model": {"num_workers": "${data.workers}"}})
    assert message.startswith("reward_model.num_workers='${data.workers}' (mapping 1): can't be resolved")
    assert "data.workers" in message
    assert "${" in error_of({"reward_model": {"num_workers": "${"}})


@pytest.mark.parametrize("override", ["reward_model.num_workers", "=1", "reward_model..num_workers=1", "~reward_model.x=1"])
def test_a_malformed_override_is_named(override: str) -> None:
    assert error_of(overrides=[override]) == (f"override {override!r} can't be read; write it as key.of.setting=value")


def test_an_override_with_broken_yaml_is_named() -> None:
    assert error_of(overrides=["reward_model.retry=[1"]).startswith("override 'reward_model.retry=[1' has no valid YAML")


def test_one_string_is_no_list_of_overrides() -> None:
    with pytest.raises(ConfigError, match="give a list"):
        load_config(overrides="a.b=1")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert error_of(tmp_path / "no.yaml") == f"{tmp_path / 'no.yaml'}: can't be read (No such file or directory); check the path"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reward_model:\n  a: [1\nb: 2\n", ", line 3, column 2: no valid YAML"),
        (
            "reward_model:\n  num_workers: 1\n  num_workers: 2\n",
            ", line 3, column 3: no valid YAML: found duplicate key",
        ),
        ("- a\n- b\n", ": the top level must be a mapping"),
        ("just text", ": the top level must be a mapping"),
    ],
)
def test_a_file_that_is_no_mapping_is_named_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    assert error_of(path).startswith(f"{path}{message}")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert str(path) in error_of(path)


@pytest.mark.parametrize("layer", [None, 3, ["a=1"]])
def test_a_layer_of_another_kind_is_refused(layer: Any) -> None:
    assert error_of({}, layer).startswith(f"layer 2 is {layer!r}; give a YAML file's path")


def test_a_value_that_yaml_could_not_hold_is_refused() -> None:
    assert error_of({"reward_model": {"reward_kwargs": {"f": print}}}).startswith("mapping 1: ")

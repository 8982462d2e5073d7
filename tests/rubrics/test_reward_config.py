"""The configuration of a pipeline: what is taken, what is refused, and how it is said."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from reward_loop.errors import ConfigError, SchemaVersionError
from reward_loop.rubrics.refusal import ConfigRefused
from reward_loop.rubrics.reward_config import RewardConfig, RubricEntry

SEED = """
schema_version: "1.0"

per_turn:
  - name: toxicity_check
    rubric: openenv.rubrics.ToxicityRubric
    weight: -10.0  # Heavy penalty
    config:
      threshold: 0.8

episode_end:
  - name: task_completion
    rubric: coding_env.rubrics.TestPassRubric
    weight: 1.0
    config:
      partial_credit: true

  - name: code_style
    rubric: coding_env.rubrics.StyleRubric
    weight: 0.3
    config:
      llm_service: style_judge
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "rewards.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(**fields: Any) -> RubricEntry:
    config = RewardConfig.load({"schema_version": "1.0", "per_turn": [{"name": "a", "rubric": "builtin.regex", **fields}]})
    return config.per_turn[0]


def refused(**fields: Any) -> ConfigRefused:
    with pytest.raises(ConfigRefused) as error:
        loaded(**fields)
    return error.value


def test_the_seeds_example_loads(tmp_path: Path) -> None:
    config = RewardConfig.load(written(tmp_path, SEED))
    assert [(phase, entry.name, entry.weight) for phase, entry in config.entries()] == [
        ("per_turn", "toxicity_check", -10.0),
        ("episode_end", "task_completion", 1.0),
        ("episode_end", "code_style", 0.3),
    ]
    assert config.per_turn[0] == RubricEntry("toxicity_check", "openenv.rubrics.ToxicityRubric", -10.0, {"threshold": 0.8})


def test_it_is_built_in_python_as_the_seeds_dataclasses_are() -> None:
    config = RewardConfig(episode_end=[RubricEntry(name="a", rubric="builtin.regex")])
    assert config.as_dict() == {
        "schema_version": "1.0",
        "per_turn": [],
        "episode_end": [
            {
                "name": "a",
                "rubric": "builtin.regex",
                "weight": 1.0,
                "config": {},
                "enabled": True,
                "on_error": "raise",
                "timeout_s": None,
            }
        ],
    }


def test_what_is_shown_can_be_loaded_again(tmp_path: Path) -> None:
    config = RewardConfig.load(written(tmp_path, SEED))
    assert RewardConfig.load(config.as_dict()) == config
    assert RewardConfig.load(OmegaConf.create(config.as_dict())) == config
    assert RewardConfig.load(config) is config


def test_it_shares_nothing_with_what_it_was_made_of_or_gives_out() -> None:
    given = {"schema_version": "1.0", "per_turn": [{"name": "a", "rubric": "b", "config": {"words": ["x"]}}]}
    config = RewardConfig.load(given)
    given["per_turn"][0]["config"]["words"].append("y")  # type: ignore[index]
    config.as_dict()["per_turn"][0]["config"]["words"].append("z")
    assert config.per_turn[0].config == {"words": ["x"]}


def test_absent_and_empty_lists_are_no_rubrics() -> None:
    assert list(RewardConfig.load({"schema_version": "1.0"}).entries()) == []
    assert list(RewardConfig.load({"schema_version": "1.0", "per_turn": None, "episode_end": []}).entries()) == []


@pytest.mark.parametrize("given", [{}, {"schema_version": None}])
def test_without_a_version_it_loads_with_one_warning(given: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert RewardConfig.load(given).schema_version == "1.0"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "schema_version" in caplog.text


def test_a_version_without_quotes_is_taken_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert RewardConfig.load(written(tmp_path, "schema_version: 1.0")).schema_version == "1.0"
    assert 'write "1.0"' in caplog.text


def test_a_version_that_yaml_has_changed_is_refused_with_the_advice_to_quote_it(tmp_path: Path) -> None:
    with pytest.raises(SchemaVersionError, match="quote it") as error:
        RewardConfig.load(written(tmp_path, "schema_version: 1.10"))
    assert (error.value.expected, error.value.got) == ("1.0", "1.1")
    assert "rewards.yaml" in str(error.value)


@pytest.mark.parametrize("version", ["2.0", "1", "1.0.0", "", 1, 2.0, True, ["1.0"], {}])
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(SchemaVersionError) as error:
        RewardConfig.load({"schema_version": version})
    assert (error.value.expected, error.value.got) == ("1.0", str(version))


def test_a_typing_error_in_a_key_is_refused_with_the_nearest_key() -> None:
    error = refused(wieght=2.0)
    assert error.code == "unknown_key"
    assert "did you mean 'weight'" in str(error)
    assert "per_turn[0]" in str(error)
    with pytest.raises(ConfigRefused, match="did you mean 'per_turn'"):
        RewardConfig.load({"schema_version": "1.0", "per_trun": []})


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = """
    schema_version: "1.0"
    per_tunr: []
    per_turn:
      - {name: a, rubric: builtin.regex, weight: heavy, enabled: 1, wait: 3}
      - {rubric: builtin.regex}
    """
    with pytest.raises(ConfigRefused) as error:
        RewardConfig.load(written(tmp_path, text))
    for said in ("rewards.yaml", "per_tunr", "per_turn[0]", "'heavy'", "enabled", "'wait'", "per_turn[1]", "name is missing"):
        assert said in str(error.value)


@pytest.mark.parametrize("weight", [True, "1.0", None, float("nan"), float("inf"), 10**400, [1.0]])
def test_a_weight_is_a_finite_number(weight: object) -> None:
    assert refused(weight=weight).code == "bad_weight"


@pytest.mark.parametrize("weight", [0, -10, 2.5, 1e-3, -0.0])
def test_a_weight_may_be_zero_or_negative(weight: float) -> None:
    assert loaded(weight=weight).weight == weight
    assert type(loaded(weight=weight).weight) is float


def test_a_weight_in_scientific_notation_is_a_number_in_yaml_too(tmp_path: Path) -> None:
    text = 'schema_version: "1.0"\nper_turn: [{name: a, rubric: b, weight: 1e-3}]'
    assert RewardConfig.load(written(tmp_path, text)).per_turn[0].weight == 0.001


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 65, "total", "weights", None, 1])
def test_a_name_must_fit_metrics_and_be_none_of_theirs(name: object) -> None:
    assert "name" in str(refused(name=name))


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 64, "Total"])
def test_a_name_may_have_letters_digits_and_some_signs(name: str) -> None:
    assert loaded(name=name).name == name


@pytest.mark.parametrize("phases", [("per_turn", "per_turn"), ("per_turn", "episode_end")])
def test_two_rubrics_of_one_name_are_refused_across_phases_too(phases: tuple[str, str]) -> None:
    given: dict[str, Any] = {"schema_version": "1.0", "per_turn": [], "episode_end": []}
    for phase in phases:
        given[phase].append({"name": "a", "rubric": "b"})
    with pytest.raises(ConfigRefused, match="a; a name is one rubric's"):
        RewardConfig.load(given)


@pytest.mark.parametrize("on_error", ["raise", "mask", {"value": -1}])
def test_on_error_is_raise_mask_or_a_value(on_error: object) -> None:
    assert loaded(on_error=on_error).on_error == on_error


@pytest.mark.parametrize("on_error", ["ignore", 0, None, {"value": "0"}, {"value": float("nan")}, {"value": 1, "x": 2}, {}])
def test_any_other_on_error_is_refused(on_error: object) -> None:
    assert "on_error" in str(refused(on_error=on_error))


@pytest.mark.parametrize("timeout", [0, -1, True, "5", float("inf")])
def test_a_timeout_is_more_than_no_time(timeout: object) -> None:
    assert "timeout_s" in str(refused(timeout_s=timeout))
    assert loaded(timeout_s=5).timeout_s == 5.0
    assert loaded(timeout_s=None).timeout_s is None


@pytest.mark.parametrize("scale", [[1, 0], [1, 1], [0], [0, "1"], [0, 1, 2], "01", [0, float("inf")], [False, True]])
def test_a_scale_is_two_numbers_in_order(scale: object) -> None:
    assert "scale" in str(refused(config={"scale": scale}))


def test_settings_of_a_rubric_are_what_json_can_hold() -> None:
    config = {"scale": [-1, 1], "words": ["a", {"b": None}], "deep": {"x": [1.5, True]}}
    assert loaded(config=config).config == config
    for wrong in ({1: "x"}, {"x": object()}, {"x": float("nan")}, {"x": {1, 2}}, {"x": 10**400}, "text", None, [1]):
        assert "config" in str(refused(config=wrong))


def test_settings_that_are_nested_without_end_are_refused() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert "levels deep" in str(refused(config=endless))


@pytest.mark.parametrize("given", [None, 1, "no such file.yaml", ["a"], {"schema_version": "1.0", "per_turn": {"name": "a"}}])
def test_what_is_no_configuration_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError):
        RewardConfig.load(given)


@pytest.mark.parametrize("text", ["a: [", "- a", "a: 1\na: 2", "\x00", "a: ${no.such.thing}"])
def test_a_file_that_is_no_yaml_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises((ConfigError, SchemaVersionError)):
        RewardConfig.load(written(tmp_path, text))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["schema_version", "per_turn", "episode_end", "name", "rubric", "weight", "config", "scale"]) | st.text(
    max_size=4
)


@given(st.dictionaries(keys, json_values | st.lists(st.dictionaries(keys, json_values), max_size=3)))
def test_any_mapping_is_a_configuration_or_an_error_of_ours(given: dict[str, Any]) -> None:
    try:
        config = RewardConfig.load(given)
    except (ConfigError, SchemaVersionError):
        return
    assert RewardConfig.load(config.as_dict()) == config

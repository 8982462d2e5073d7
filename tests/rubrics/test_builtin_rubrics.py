"""Rubrics that a configuration has without any code: regular expressions, lengths, rules, the custom function, the model."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.rubrics.build import builder_of
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.reward_config import RubricEntry
from reward_loop.rubrics.score import Score


def score(
    rubric: str, text: str, resources: Resources | None = None, metadata: dict[str, Any] | None = None, **config: Any
) -> Score:
    build = builder_of(RubricEntry("mine", rubric, config=config), resources or Resources())
    result = build(config)(Action(text), Observation(done=True, metadata=metadata or {}))
    assert isinstance(result, Score)
    return result


@pytest.mark.parametrize(
    ("text", "config", "expected"),
    [
        ("the answer is 42", {"pattern": r"\d+"}, 1.0),
        ("the answer", {"pattern": r"\d+"}, 0.0),
        ("the answer is 42", {"pattern": r"\d+", "match": "start"}, 0.0),
        ("42 is it", {"pattern": r"\d+", "match": "start"}, 1.0),
        ("42 is it", {"pattern": r"\d+", "match": "whole"}, 0.0),
        ("42", {"pattern": r"\d+", "match": "whole"}, 1.0),
        ("YES", {"pattern": "yes"}, 0.0),
        ("YES", {"pattern": "yes", "ignore_case": True}, 1.0),
        ("a\nb", {"pattern": "a.b"}, 0.0),
        ("a\nb", {"pattern": "a.b", "across_lines": True}, 1.0),
    ],
)
def test_regex(text: str, config: dict[str, Any], expected: float) -> None:
    assert score("builtin.regex", text, **config) == expected


@pytest.mark.parametrize(
    ("text", "config", "expected"),
    [
        ("x" * 10, {}, 1.0),
        ("x" * 10, {"most": 10}, 1.0),
        ("x" * 11, {"most": 10}, 0.0),
        ("x" * 12, {"most": 10, "falloff": 4}, 0.5),
        ("x" * 99, {"most": 10, "falloff": 4}, 0.0),
        ("x" * 3, {"least": 4, "falloff": 4}, 0.75),
        ("one two three", {"most": 3, "unit": "words"}, 1.0),
        ("one two three", {"most": 2, "unit": "words"}, 0.0),
        ("", {"least": 1}, 0.0),
    ],
)
def test_length(text: str, config: dict[str, Any], expected: float) -> None:
    assert score("builtin.length", text, **config) == expected


def test_the_length_itself_is_in_the_extra_info() -> None:
    assert score("builtin.length", "four").extra == {"length": 4}


@pytest.mark.parametrize(
    ("rubric", "config", "said"),
    [
        ("builtin.regex", {}, "pattern"),
        ("builtin.regex", {"pattern": "("}, "no regular expression"),
        ("builtin.regex", {"pattern": 3}, "no regular expression"),
        ("builtin.regex", {"pattern": "x", "match": "fully"}, "search, start, whole"),
        ("builtin.regex", {"patern": "x"}, "pattern"),
        ("builtin.length", {"most": -1}, "0 or more"),
        ("builtin.length", {"most": True}, "whole numbers"),
        ("builtin.length", {"most": 1, "least": 2}, "below least"),
        ("builtin.length", {"unit": "tokens"}, "characters or words"),
        ("builtin.length", {"mots": 1}, "did you mean 'most'"),
        ("builtin.rule", {"data_source": "no/such"}, "no/such"),
        ("builtin.custom", {}, "custom_reward_function.path"),
        ("builtin.reward_model", {}, "reward_model.enable"),
        ("builtin.mcp", {"service": "style_judge"}, "mcp_services"),
        ("builtin.nothing", {}, "unknown rubric"),
    ],
)
def test_what_can_not_work_is_said_when_it_is_built_with_the_rubrics_name(rubric: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(RewardLoopError, match="rubric mine") as error:
        builder_of(RubricEntry("mine", rubric, config=config), Resources())(config)
    assert said in str(error.value)
    assert isinstance(error.value, ConfigError)


def test_a_rule_scores_by_the_data_source_of_the_sample_or_of_the_config() -> None:
    metadata = {"data_source": "openai/gsm8k", "ground_truth": "42"}
    assert score("builtin.rule", "#### 42", metadata=metadata) == 1.0
    assert score("builtin.rule", "#### 41", metadata=metadata) == 0.0
    assert score("builtin.rule", "#### 42", metadata={"ground_truth": "42"}, data_source="openai/gsm8k") == 1.0


def test_the_custom_function_and_the_model_get_what_custom_functions_get_and_the_config() -> None:
    def compute_score(solution_str: str, ground_truth: str, bonus: float = 0.0) -> float:
        return float(solution_str == ground_truth) + bonus

    resources = Resources(custom_function=compute_score, reward_model=lambda solution_str: len(solution_str) / 10)
    assert score("builtin.custom", "a", resources, {"ground_truth": "a"}, bonus=0.5) == 1.5
    assert score("builtin.reward_model", "four", resources) == 0.4
    with pytest.raises(ConfigError, match="bonsu"):
        score("builtin.custom", "a", resources, {"ground_truth": "a"}, bonsu=0.5)


def test_the_scale_is_the_composers_and_never_reaches_the_rubric() -> None:
    assert score("builtin.regex", "x", pattern="x", scale=[0, 2]) == 1.0

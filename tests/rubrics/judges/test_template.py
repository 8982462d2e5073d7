"""Prompts are filled in one pass, and say loudly what they can't be filled with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError, JudgeError
from reward_loop.rubrics.judges.fields import FIELDS, StepFields
from reward_loop.rubrics.judges.template import PromptTemplate
from reward_loop.rubrics.observation import Action, Observation


def filled(template: str, action: object = "6 * 7 = 42", **metadata: object) -> str:
    return PromptTemplate(template, FIELDS).filled(StepFields(action, Observation(metadata=metadata)))


@pytest.mark.parametrize("text", ["{prompt}", "{", "}", "{{completion}}", "{0}", "\\1 \\g<0> %s $x", '{"a": {}}'])
def test_what_is_filled_in_is_just_text(text: str) -> None:
    assert filled("[{completion}] of [{ground_truth}]", text, ground_truth="{completion}") == f"[{text}] of [{{completion}}]"


@given(st.text())
def test_any_text_comes_through_unchanged(text: str) -> None:
    assert filled("<{completion}>", text) == f"<{text}>"


@pytest.mark.parametrize("template", ['{"score": 1}', "{}", "{ action }", "{0}", 'a {"b": {"c": 1}}', "{action!r}", "f(x){"])
def test_braces_of_the_template_that_hold_no_name_stay(template: str) -> None:
    assert filled(template) == template


def test_a_template_with_doubled_braces_is_one_for_str_format() -> None:
    template = 'Judge {completion}. Answer {{"score": 0.0-1.0, "why": {{"x": 1}}}}'
    assert filled(template) == template.format(completion="6 * 7 = 42")


def test_a_placeholder_that_nothing_fills_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError, match=r"placeholder \{complation\}, but there are only .* did you mean \{completion\}\?"):
        PromptTemplate("Rate {complation}", FIELDS)


def test_a_placeholder_that_a_sample_does_not_fill_is_an_error_of_this_sample() -> None:
    with pytest.raises(JudgeError, match=r"needs \{ground_truth\}, which this sample does not have"):
        filled("{ground_truth}")
    with pytest.raises(JudgeError, match=r"needs \{metadata.task.name\}"):
        filled("{metadata.task.name}", task={"title": "x"})


def test_a_dot_leads_to_a_key_or_an_attribute() -> None:
    assert filled("{metadata.task.name}: {action.message}", Action("hi"), task={"name": "greet"}) == "greet: hi"


def test_an_action_shows_its_text_data_their_json_and_all_else_how_it_prints() -> None:
    assert filled("{action}", Action("hi")) == "hi"
    assert filled("{prompt}", prompt=[{"role": "user", "content": "é"}]) == '[{"role": "user", "content": "é"}]'
    assert filled("{ground_truth} {done}", ground_truth=42) == "42 False"


def test_a_template_that_is_one_placeholder_has_a_value() -> None:
    history = [{"role": "user", "content": "hi"}]
    fields = StepFields("x", Observation(metadata={"history": history}))
    assert PromptTemplate("{metadata.history}").value(fields) is history
    assert PromptTemplate("of {completion}").value(fields) == "of x"

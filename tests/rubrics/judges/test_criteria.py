"""Several criteria in one call: each is decided once, by one of its own choices, or the answer is none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError, JudgeError
from reward_loop.rubrics.judges.criteria import CriteriaJudge
from reward_loop.rubrics.judges.criterion import Criterion, read_criteria
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible
from reward_loop.rubrics.judges.usage import usage_recorded
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.score import Score
from tests.rubrics.judges.judge_model import USAGE, obeying
from tests.scoring.service import Answer, completion, service

CRITERIA = [
    Criterion(name="correct", description="The result is right.", choices=("no", "yes"), weight=3),
    Criterion(name="clear", description="It is easy to read.", choices=("no", "partly", "mostly", "fully")),
    Criterion(name="short", description="It says nothing twice."),
]


async def judged(answer: Any, **settings: Any) -> tuple[Score, list[dict[str, Any]]]:
    async with service(answer) as model:
        judge = CriteriaJudge(CRITERIA, OpenAICompatible(model.base_url, "m"), **settings)
        return await judge(Action("42"), Observation(metadata={"prompt": "6 * 7?"})), model.asked


def decide(choices: dict[str, str]) -> Any:
    """Answer with the choices for those criteria that a prompt names."""
    return obeying(lambda prompt: {name: choices[name] for name in re.findall(r"^- (\w+):", prompt, re.MULTILINE)})


async def test_choices_are_evenly_spaced_from_the_worst_to_the_best_and_weighted() -> None:
    score, [asked] = await judged(decide({"correct": "yes", "clear": "partly", "short": "no"}))
    assert score == pytest.approx((3 * 1 + 1 / 3 + 0) / 5)
    assert score.extra["criteria"] == {"correct": 1.0, "clear": pytest.approx(1 / 3), "short": 0.0}
    assert score.extra["choices"] == {"correct": "yes", "clear": "partly", "short": "no"}
    shown = asked["messages"][0]["content"]
    assert "6 * 7?" in shown
    assert "- clear: It is easy to read. [no | partly | mostly | fully]" in shown
    assert asked["structured_outputs"]["json"]["required"] == ["correct", "clear", "short"]


async def test_they_are_asked_for_in_batches() -> None:
    score, asked = await judged(decide({"correct": "no", "clear": "fully", "short": "yes"}), batch=2)
    assert score == pytest.approx(2 / 5)
    assert sorted(len(each["structured_outputs"]["json"]["required"]) for each in asked) == [1, 2]


GOOD = {"correct": "yes", "clear": "fully", "short": "yes"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is no JSON"),
        ("All fine.", "it is no JSON"),
        (json.dumps(GOOD)[:-3], "it is no JSON"),
        ('["yes", "fully", "yes"]', "it is no JSON object"),
        ("[]", "it must decide each of .* exactly once"),
        (json.dumps({**GOOD, "kind": "yes"}), "exactly once"),
        (json.dumps({"correct": "yes", "clear": "fully"}), "exactly once"),
        ('{"correct": "yes", "correct": "no", "clear": "no", "short": "no"}', "exactly once"),
        (json.dumps({**GOOD, "short": "fully"}), r"\['short'\] have other choices"),
        (json.dumps({**GOOD, "short": None}), r"\['short'\] have other choices"),
        (json.dumps({**GOOD, "short": ["yes"]}), r"\['short'\] have other choices"),
    ],
)
async def test_an_answer_of_any_other_form_is_an_error_that_was_paid_for(text: str, why: str) -> None:
    with usage_recorded() as ledger, pytest.raises(JudgeError, match=why):
        await judged(completion(text, USAGE))
    assert ledger.total.prompt_tokens == 100


@pytest.mark.parametrize("answer", [(400, {}, "structured_outputs: no such key"), (200, {}, "{}")])
async def test_a_service_that_can_not_do_it_is_an_error(answer: Answer) -> None:
    with pytest.raises(JudgeError, match="the judge m failed"):
        await judged(answer)


async def test_json_in_a_fence_counts_where_nothing_holds_the_judge_to_the_form() -> None:
    score, _ = await judged(completion(f"```json\n{json.dumps(GOOD)}\n```"))
    assert score == 1.0


FILE = """
criteria:
  - {name: correct, description: The result is right., weight: 3, choices: ["no", "yes"]}
  - name: clear
    description: It is easy to read.
"""


def test_criteria_come_from_a_file_a_list_or_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "criteria.yaml"
    path.write_text(FILE)
    correct, clear = read_criteria(path)
    assert (correct.weight, correct.choices) == (3.0, ("no", "yes"))
    assert (clear.weight, clear.choices) == (1.0, ("no", "partly", "yes"))
    assert read_criteria([correct.model_dump(), clear]) == (correct, clear)
    assert read_criteria({"clear": "It is easy to read."}) == (clear,)
    assert read_criteria({"correct": {**correct.model_dump(exclude={"name"})}}) == (correct,)


@pytest.mark.parametrize(
    ("criteria", "problem"),
    [
        ([], "at least 1"),
        ([{"name": "a"}], r"0\.description"),
        ([{"name": "a b", "description": "x"}], r"0\.name"),
        ([{"name": "a", "description": "x", "wieght": 1}], r"0\.wieght"),
        ([{"name": "a", "description": "x", "weight": 0}], r"0\.weight"),
        ([{"name": "a", "description": "x", "choices": ["yes"]}], r"0\.choices"),
        ([{"name": "a", "description": "x", "choices": ["yes", "yes"]}], "must be different"),
        ([{"name": "a", "description": "x"}, {"name": "a", "description": "y"}], r"\['a'\] are there twice"),
        ("no/such/file.yaml", "can't be read"),
    ],
)
def test_criteria_that_can_not_work_are_refused(criteria: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_criteria(criteria)


def test_a_file_with_another_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "criteria.yaml").write_text("criterions: []")
    with pytest.raises(ConfigError, match="has the one key criteria"):
        read_criteria(tmp_path / "criteria.yaml")


def test_a_prompt_that_does_not_show_the_criteria_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"put \{criteria\} into it"):
        CriteriaJudge(CRITERIA, OpenAICompatible("http://x", "m"), prompt_template="Rate {completion}")
    with pytest.raises(ConfigError, match="batch=0"):
        CriteriaJudge(CRITERIA, OpenAICompatible("http://x", "m"), batch=0)

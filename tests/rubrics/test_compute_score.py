"""A rubric as a custom reward function, and every rule function as a rubric."""

from __future__ import annotations

import inspect
from typing import Any

import cloudpickle
import pytest
import torch

from reward_loop import DataProto, RewardLoopManager
from reward_loop.functions import default_compute_score, rule_for
from reward_loop.functions.custom import OFFERED, adapt
from reward_loop.functions.isolated import declared_isolation, isolated
from reward_loop.rubrics import Gate, Rubric, RubricComposer, Sequential, as_compute_score, as_rubric
from tests.rubrics.scoring_rubrics import Awaited, Fixed

RULES: list[tuple[str, str, Any]] = [
    ("openai/gsm8k", "6 * 7 = 42\n#### 42", "42"),
    ("openai/gsm8k", "#### 41", "42"),
    ("lighteval/MATH", r"\boxed{\frac12}", r"\frac{1}{2}"),
    ("math_dapo", "Answer: 42", "42"),
    ("numina_olympiads", r"\boxed{0.5}", r"\frac{1}{2}"),
    ("hiyouga/geometry3k", r"<think>so</think> \boxed{42}", "42"),
    ("searchR1_nq", "<answer>Paris</answer>", {"target": ["Paris"]}),
    ("math_verify", r"\boxed{42}", "42"),
]


@pytest.mark.parametrize(("data_source", "solution", "truth"), RULES)
def test_a_rule_comes_through_a_rubric_and_back_as_it_was(data_source: str, solution: str, truth: Any) -> None:
    rule = rule_for(data_source)
    direct = rule(solution, truth)
    assert as_compute_score(as_rubric(rule))(solution_str=solution, ground_truth=truth) == direct
    through = as_compute_score(as_rubric(default_compute_score))
    assert through(data_source=data_source, solution_str=solution, ground_truth=truth) == direct


def test_a_rule_keeps_where_it_wants_to_run() -> None:
    assert declared_isolation(as_compute_score(as_rubric(rule_for("math_verify")))) == "process"
    assert declared_isolation(as_compute_score(rule_for("openai/gsm8k"))) == declared_isolation(rule_for("openai/gsm8k"))
    assert callable(declared_isolation(as_compute_score(default_compute_score)))
    assert declared_isolation(as_compute_score(isolated("inline")(lambda completion: 1.0))) == "inline"


def test_an_async_rubric_becomes_a_coroutine_function() -> None:
    assert inspect.iscoroutinefunction(adapt(as_compute_score(Awaited()), {}, OFFERED))
    assert not inspect.iscoroutinefunction(adapt(as_compute_score(Fixed()), {}, OFFERED))


def test_it_goes_into_other_processes() -> None:
    again = cloudpickle.loads(cloudpickle.dumps(as_compute_score(lambda completion, ground_truth="none": ground_truth == "none")))
    assert again(solution_str="x") == 1.0


def test_what_is_below_a_rubric_and_what_it_says_is_reported() -> None:
    class Explained(Fixed):
        def forward(self, action: Any, observation: Any) -> Any:
            return {"score": 0.5, "why": observation.metadata["extra_info"]["why"]}

    assert as_compute_score(Explained())(solution_str="x", extra_info={"why": "because"}) == {"score": 0.5, "why": "because"}
    below = {"score": 0.7, "components": {"rubric_0": 1.0, "rubric_0.rubric": 1.0, "rubric_1": 0.7}}
    assert as_compute_score(Sequential(Gate(Fixed()), Fixed(0.7)))(solution_str="x") == below


def test_a_rubric_sees_a_step_that_is_done() -> None:
    class Done(Rubric):
        def forward(self, action: Any, observation: Any) -> bool:
            return bool(observation.done and action.message == "x")

    assert as_compute_score(Done())(solution_str="x") == 1.0


def test_a_composer_becomes_one_too_and_gives_each_sample_an_episode() -> None:
    composer = RubricComposer(
        {"length": lambda completion: {"score": len(completion) / 10, "n": 3}, "fixed": Fixed(0.5)}, {"fixed": 2}
    )
    compute_score = as_compute_score(composer)
    for _ in range(2):
        assert compute_score(solution_str="abc") == {
            "score": 1.3,
            "length.n": 3,
            "reward_components": {"length": 0.3, "fixed": 0.5},
            "reward_weights": {"length": 1.0, "fixed": 2.0},
        }


class Prompted(Rubric):
    async def forward(self, action: Any, observation: Any) -> Any:
        return {"score": len(action.message) / 10, "truth": observation.metadata["ground_truth"]}


@pytest.mark.parametrize("isolation", ["auto", "thread", "process"])
def test_the_reward_loop_scores_by_a_rubric(isolation: str) -> None:
    rubric: Any = (
        Prompted()
        if isolation == "auto"
        else lambda completion, ground_truth: {"score": len(completion) / 10, "truth": ground_truth}
    )
    columns = {"solution_str": ["abc", "abcde"], "reward_model": [{"ground_truth": "x"}, {"ground_truth": "y"}]}
    config = {"reward_model": {"isolation": isolation}}
    with RewardLoopManager(config, compute_score=as_compute_score(rubric)) as manager:
        data = DataProto.from_dict(non_tensors=columns)
        scored = manager.compute_rm_score(data)
    assert scored.batch is not None
    assert torch.allclose(scored.batch["rm_scores"].squeeze(-1), torch.tensor([0.3, 0.5]))
    assert scored.non_tensor_batch["truth"].tolist() == ["x", "y"]

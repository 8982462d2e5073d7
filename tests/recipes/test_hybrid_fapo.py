"""recipes/hybrid_fapo: what the judge is asked about, what its answers cost, and the recipe with a real server of a judge."""

from __future__ import annotations

import re
from typing import Any

import pytest

from recipes.hybrid_fapo.reward import compute_score_fapo
from reward_loop.errors import DataError, RewardFunctionError, ServerUnavailable
from tests.recipes.conftest import ServedRecipe
from tests.scoring.service import Answer, Service, completion, service

RIGHT = "16 and 64 share 16.\n\nSo it is \\boxed{\\frac{1}{4}}."
WRONG = "Halve both.\n\nSo it is \\boxed{\\frac{8}{32}}."


async def scored(judge: Service, solution: str, split: str | None = "train", **more: Any) -> dict[str, Any]:
    return await compute_score_fapo(
        data_source="fractions",
        solution_str=solution,
        ground_truth="\\frac14",
        extra_info={"question": "What is 16/64?", "split": split},
        reward_router_address=judge.base_url.removeprefix("http://"),
        reward_model_tokenizer=None,  # type: ignore[arg-type]  # this judge's prompt is text
        **more,
    )


@pytest.mark.parametrize(("verdict", "score", "flawed"), [(-1, 1.0, False), (0, 0.0, True), (1, 0.0, True)])
async def test_a_right_answer_reached_by_a_wrong_step_loses_the_penalty(verdict: int, score: float, flawed: bool) -> None:
    async with service(completion(f"Let me see. \\boxed{{{verdict}}}")) as judge:
        result = await scored(judge, RIGHT)
    assert result == {
        "score": score,
        "acc": True,
        "pred": "\\frac{1}{4}",
        "is_flawed_positive": flawed,
        "first_error": verdict,
        "judge_calls": 1,
    }
    assert "<paragraph_1>\nSo it is" in judge.asked[0]["messages"][0]["content"]


async def test_the_penalty_is_a_setting() -> None:
    async with service(completion("\\boxed{0}")) as judge:
        assert (await scored(judge, RIGHT, penalty=0.5))["score"] == 0.5


@pytest.mark.parametrize(
    ("solution", "split", "score"),
    [(WRONG, "train", -1.0), ("It is small.", "train", -1.0), (WRONG, "test", -1.0), (RIGHT, "test", 1.0), (RIGHT, "val", 1.0)],
)
async def test_the_judge_is_not_asked_about_wrong_answers_and_validation(solution: str, split: str, score: float) -> None:
    async with service(completion("\\boxed{0}")) as judge:
        result = await scored(judge, solution, split)
    assert judge.asked == []
    assert (result["score"], result["judge_calls"], result["is_flawed_positive"]) == (score, 0, None)


async def test_a_sample_that_does_not_say_its_split_is_an_error() -> None:
    async with service(completion("\\boxed{-1}")) as judge:
        with pytest.raises(DataError, match=re.escape("extra_info['split'] is None; set it to train")):
            await scored(judge, RIGHT, None)


@pytest.mark.parametrize("text", ["It is fine.", "\\boxed{none}", "\\boxed{2}", "\\boxed{-2}", "\\boxed{", "\\boxed{1.0}", "-1"])
async def test_a_verdict_that_is_no_paragraph_is_the_judges_failure_and_never_not_flawed(text: str) -> None:
    async with service(completion(text)) as judge:
        with pytest.raises(RewardFunctionError, match=r"the judge (boxed no number|found an error in paragraph)"):
            await scored(judge, RIGHT)


async def test_a_judge_that_can_not_be_reached_is_a_failure_too() -> None:
    broken: Answer = (500, {}, "no")
    async with service(broken) as judge:
        with pytest.raises(ServerUnavailable):
            await scored(judge, RIGHT)


@pytest.mark.slow
@pytest.mark.vllm
def test_the_recipe_asks_its_judge_about_right_training_answers_only(served_recipe: ServedRecipe) -> None:
    printed = served_recipe("hybrid_fapo")
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if line.startswith("│")]
    assert [(split, right, calls, status) for split, _, right, _, calls, _, status in rows] == [
        ("train", "True", "1", "ok"),
        ("train", "True", "1", "ok"),
        ("train", "False", "0", "ok"),
        ("train", "False", "0", "ok"),
        ("train", "None", "None", "error"),
        ("test", "True", "0", "ok"),
        ("test", "True", "0", "ok"),
        ("test", "False", "0", "ok"),
    ]
    for _, _, right, first_error, _, reward, status in rows:
        flawed = first_error in ("0", "1")
        assert reward == ("-" if status == "error" else "-1" if right == "False" else "+0" if flawed else "+1")

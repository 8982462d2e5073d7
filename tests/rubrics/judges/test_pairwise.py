"""A judge that compares is asked in both orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reward_loop.errors import ConfigError, JudgeError, Unscorable
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible
from reward_loop.rubrics.judges.pairwise import PairwiseJudge
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.score import Score
from tests.rubrics.judges.judge_model import obeying
from tests.scoring.service import completion, service


def prefers(answer: str) -> Callable[[str], str]:
    """Prefer this answer, wherever it stands."""
    return lambda prompt: "A" if prompt.index(answer) < prompt.index("Response B") else "B"


async def judged(decide: Callable[[str], str], **settings: Any) -> Score:
    async with service(obeying(decide)) as model:
        judge = PairwiseJudge(OpenAICompatible(model.base_url, "m"), **settings)
        seen = Observation(metadata={"prompt": "Say hello", "ground_truth": "GOOD DAY", "reference": {"text": "HOWDY"}})
        score: Score = await judge(Action("HI THERE"), seen)
        return score


@pytest.mark.parametrize(
    ("decide", "score", "agreed", "orders"),
    [
        (prefers("HI THERE"), 1.0, True, ["first", "first"]),
        (prefers("GOOD DAY"), 0.0, True, ["second", "second"]),
        (lambda _: "tie", 0.5, True, ["tie", "tie"]),
        (lambda _: "A", 0.5, False, ["first", "second"]),
    ],
)
async def test_the_score_is_what_both_orders_say(decide: Any, score: float, agreed: bool, orders: list[str]) -> None:
    result = await judged(decide)
    assert (result, result.extra) == (score, {"agreed": agreed, "orders": orders})


async def test_a_judge_that_prefers_a_place_may_be_no_judge() -> None:
    with pytest.raises(Unscorable, match="prefers the first answer, and in the other order the second"):
        await judged(lambda _: "A", disagreement="unscorable")


async def test_a_sample_may_be_compared_with_anything_of_its_metadata() -> None:
    assert await judged(prefers("HI THERE"), against="metadata.reference.text") == 1.0


async def test_an_answer_that_is_no_choice_is_an_error() -> None:
    async with service(completion("both")) as model:
        judge = PairwiseJudge(OpenAICompatible(model.base_url, "m"))
        with pytest.raises(JudgeError, match="wrote 'both'"):
            await judge(Action("a"), Observation(metadata={"prompt": "p", "ground_truth": "b"}))
        with pytest.raises(JudgeError, match=r"needs \{ground_truth\}"):
            await judge(Action("a"), Observation(metadata={"prompt": "p"}))


@pytest.mark.parametrize("settings", [{"against": "refrence"}, {"against": "a b"}, {"prompt_template": "{first} only"}])
def test_settings_that_can_not_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PairwiseJudge(OpenAICompatible("http://x", "m"), **settings)

"""recipes/genrm_gsm8k: what counts as a judge's score, and the recipe with a real server of a tiny judge."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from recipes.genrm_gsm8k.reward import compute_score_gsm8k, parse_score
from reward_loop.errors import RewardFunctionError
from reward_loop.scoring.chat_reply import ChatReply
from tests.recipes.conftest import ServedRecipe
from tests.scoring.service import completion, service


def reply(text: str, finish_reason: str = "stop") -> ChatReply:
    return ChatReply.model_validate({"choices": [{"message": {"content": text}, "finish_reason": finish_reason}]})


def test_the_function_takes_what_verl_passes() -> None:
    assert list(inspect.signature(compute_score_gsm8k).parameters)[:6] == [
        *("data_source", "solution_str", "ground_truth", "extra_info", "reward_router_address", "reward_model_tokenizer")
    ]


@pytest.mark.parametrize(
    ("text", "score"), [("All right.\n\n10", 10.0), ("No.\n\n0\n", 0.0), ("One.\n\nTwo.\n\n 7 ", 7.0), ("3", 3.0)]
)
def test_the_last_paragraph_is_the_score(text: str, score: float) -> None:
    assert parse_score(reply(text)) == score


@pytest.mark.parametrize(
    "text", ["", "I like it.", "Good.\n\n11", "Good.\n\n-1", "Good.\n\n7/10", "7\n\nas I said", "Good.\n\nseven"]
)
def test_a_judge_without_a_usable_score_has_failed_and_its_words_are_in_the_message(text: str) -> None:
    with pytest.raises(RewardFunctionError, match=re.escape(repr(text.rpartition("\n\n")[2]))):
        parse_score(reply(text))


def test_a_reply_that_was_cut_off_is_no_score_even_if_it_ends_with_a_number() -> None:
    with pytest.raises(RewardFunctionError, match=r"cut off.*raise max_tokens"):
        parse_score(reply("Fine.\n\n1", finish_reason="length"))


async def test_the_judge_reads_the_problem_and_the_solution() -> None:
    async with service(completion("Fine.\n\n8", usage={"prompt_tokens": 30, "completion_tokens": 5})) as judge:
        result = await judged(judge.base_url, extra_info={"question": "What is {6} * 7?"})
    assert result == {"score": 8.0, "judge_tokens": 35}
    (asked,) = judge.asked
    assert "What is {6} * 7?" in asked["messages"][0]["content"]
    assert "6 * 7 = 42" in asked["messages"][0]["content"]
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"]) == (0.7, 0.8, 4096)


async def test_the_sampling_comes_from_reward_kwargs() -> None:
    async with service(completion("Fine.\n\n8")) as judge:
        await judged(judge.base_url, extra_info={"question": "?"}, sampling_params={"temperature": 0.0})
    assert judge.asked[0].keys() >= {"temperature"}
    assert "top_p" not in judge.asked[0]


async def judged(base_url: str, **more: Any) -> dict[str, float | int]:
    return await compute_score_gsm8k(
        data_source="openai/gsm8k",
        solution_str="6 * 7 = 42",
        ground_truth="42",
        reward_router_address=base_url.removeprefix("http://"),
        reward_model_tokenizer=None,  # type: ignore[arg-type]  # this judge's prompt is text
        **more,
    )


@pytest.mark.slow
@pytest.mark.vllm
def test_the_recipe_masks_what_the_judge_could_not_read_and_prints_a_score_for_the_rest(
    served_recipe: ServedRecipe,
) -> None:
    printed = served_recipe("genrm_gsm8k")
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if line.startswith("│")]
    statuses = [row[3] for row in cells if row[3]]
    assert statuses == ["ok"] * 5 + ["error", "ok", "unscorable"]
    assert all(re.fullmatch("10|[0-9]", row[2]) for row in cells if row[3] == "ok")
    assert [row[2] for row in cells if row[3] in ("error", "unscorable")] == ["-", "-"]

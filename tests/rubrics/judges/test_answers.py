"""What a tool's result means, whichever way it was written; what means nothing is an error, never a 0."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.errors import JudgeError
from reward_loop.rubrics.judges.answers import answer_of
from reward_loop.rubrics.judges.tool import ToolResult


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (ToolResult({"score": 0.5, "reasoning": "ok"}), {"score": 0.5, "reasoning": "ok"}),
        (ToolResult({"result": {"score": 0.5, "x": 1}}), {"score": 0.5, "x": 1}),
        (ToolResult({"result": 0.5}), {"score": 0.5}),
        (ToolResult({"result": '{"score": 0.5}'}), {"score": 0.5}),
        (ToolResult({"result": "0.5"}), {"score": 0.5}),
        (ToolResult(None, '{"score": 0.5, "x": 1}'), {"score": 0.5, "x": 1}),
        (ToolResult(None, "0.5"), {"score": 0.5}),
        (ToolResult(0.5), {"score": 0.5}),
        (ToolResult({"score": 0.5}, '{"score": 0.9}'), {"score": 0.5}),
        (ToolResult({"other": 1}, '{"score": 0.9}'), {"score": 0.9}),
        (ToolResult({"score": True}), {"score": 1.0}),
    ],
)
def test_structured_content_goes_before_what_it_wraps_and_that_before_the_text(result: ToolResult, answer: object) -> None:
    assert answer_of(result, "score", "judge") == answer


@pytest.mark.parametrize(
    "result",
    [
        ToolResult(),
        ToolResult({}),
        ToolResult(None, "good"),
        ToolResult(None, '{"score": 0.'),
        ToolResult({"result": None}),
        ToolResult({"result": True}),
        ToolResult({"score": "0.5"}),
        ToolResult({"score": None}),
        ToolResult({"score": float("nan")}),
        ToolResult(None, '{"score": NaN}'),
        ToolResult(None, '{"score": 1e999}'),
        ToolResult(None, "[0.5]"),
        ToolResult({"score": 0.5}, "it broke", is_error=True),
    ],
)
def test_a_result_without_a_finite_score_is_an_error(result: ToolResult) -> None:
    with pytest.raises(JudgeError, match=r"^judge (gave|failed)"):
        answer_of(result, "score", "judge")


def test_a_tool_that_failed_gives_its_reason() -> None:
    with pytest.raises(JudgeError, match="judge failed: out of memory"):
        answer_of(ToolResult({"score": 1.0}, "out of memory", is_error=True), "score", "judge")


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (ToolResult({"result": "hello"}), {"text": "hello"}),
        (ToolResult({"text": "hello", "mood": "calm"}), {"text": "hello", "mood": "calm"}),
        (ToolResult(None, "hello"), {"text": "hello"}),
    ],
)
def test_a_service_model_gives_a_text(result: ToolResult, answer: dict[str, Any]) -> None:
    assert answer_of(result, "text", "user") == answer


def test_any_object_may_be_an_answer_where_the_service_says_so() -> None:
    assert answer_of(ToolResult({"rows": [1]}), "object", "db") == {"rows": [1]}
    assert answer_of(ToolResult(None, '{"rows": []}'), "object", "db") == {"rows": []}
    with pytest.raises(JudgeError, match="db gave no object: 'none'"):
        answer_of(ToolResult(None, "none"), "object", "db")

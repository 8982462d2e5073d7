"""recipes/rubric_coding_env: what submissions earn, with a judge in this process and with a model that judges."""

from __future__ import annotations

import pytest

from recipes.rubric_coding_env.run import run
from recipes.rubric_coding_env.style_judge import judge_style
from recipes.rubric_coding_env.tasks import TASKS
from reward_loop.serving.server import VLLMServer


def rows(printed: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if line.startswith("│")]


async def test_better_submissions_earn_more_and_style_counts_less_with_each_episode(capsys: pytest.CaptureFixture[str]) -> None:
    await run(6, None, None)
    printed = capsys.readouterr().out
    shown = rows(printed)
    assert [row[-1] for row in shown[:3]] == ["0.700", "0.750", "1.400"]
    assert [row[6] for row in shown[::3]] == ["0.300", "0.225", "0.150", "0.075", "0.000", "0.000"]
    assert [row[5] for row in shown] == ["", "", "0.50"] * 6  # judged at the end only, and absent before
    assert "4 changes of weights; the judge was asked 18 times" in printed


@pytest.mark.vllm
async def test_a_model_may_judge(judge_server: VLLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    await run(1, judge_server.url, "judge")
    styles = [float(row[4]) for row in rows(capsys.readouterr().out)]
    assert len(styles) == 3
    assert all(0.0 <= style <= 1.0 for style in styles)


def test_the_last_submissions_have_style_and_what_is_no_code_has_none() -> None:
    assert [judge_style(task.submissions[-1])["score"] for task in TASKS] == [1.0, 1.0]
    assert judge_style("def (")["score"] == 0.0

"""Criteria on a real vLLM server, whose model babbles unless it is held to a form."""

from __future__ import annotations

import pytest

from reward_loop.rubrics.judges.criteria import CriteriaJudge
from reward_loop.rubrics.judges.llm_judge import LLMJudge
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible
from reward_loop.rubrics.judges.pairwise import PairwiseJudge
from reward_loop.rubrics.judges.usage import Prices, usage_recorded
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.serving.server import VLLMServer

pytestmark = pytest.mark.vllm

CRITERIA = {
    "right": {"description": "42?", "choices": ["no", "yes"]},
    "clear": "Easy?",
    "short": {"description": "Short?", "choices": ["long", "fair", "short", "terse"]},
}
ACTION, SEEN = Action("42"), Observation(metadata={"prompt": "6*7?", "ground_truth": "41"})


async def test_a_real_judge_decides_criteria_compares_and_scores(judge_server: VLLMServer) -> None:
    client = OpenAICompatible(judge_server.url, "judge", prices=Prices(prompt=1e6), sampling={"max_tokens": 100})
    with usage_recorded() as ledger:
        decided = await CriteriaJudge(CRITERIA, client, prompt_template="{completion} {criteria}", batch=2)(ACTION, SEEN)
        compared = await PairwiseJudge(client, prompt_template="{first} or {second}?")(ACTION, SEEN)
        scored = await LLMJudge("Rate {action}", client, default_score=-1.0, normalize=False)(ACTION, SEEN)
    assert decided.extra["choices"].keys() == CRITERIA.keys()
    assert 0 <= decided <= 1
    assert compared in (0.0, 0.5, 1.0)
    assert scored == -1.0 or 0 <= scored <= 1  # a text of 100 random tokens may never come to its score
    assert ledger.total.calls == 5
    assert ledger.total.cost == ledger.total.prompt_tokens > 0

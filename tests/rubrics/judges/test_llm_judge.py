"""The rubric that asks a language model, as OpenEnv's users know it, without its silent zeros."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reward_loop.errors import ConfigError, JudgeError
from reward_loop.rubrics.judges.llm_judge import LLMJudge
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible
from reward_loop.rubrics.judges.usage import usage_recorded
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.score import Score
from tests.rubrics.judges.judge_model import USAGE, obeying
from tests.scoring.service import completion, completions, service

PROMPT = "Rate {action} for {metadata.task}. Score (0-1):"
ACTION, SEEN = Action("6 * 7 = 42"), Observation(metadata={"task": "math"})


class Client:
    """A client of another kind, as OpenEnv's are."""

    def __init__(self, *texts: Any) -> None:
        self.texts = list(texts)
        self.prompts: list[str] = []

    async def complete(self, prompt: str, **_: object) -> Any:
        self.prompts.append(prompt)
        return self.texts.pop(0)


async def judged(judge: LLMJudge) -> Score:
    score: Score = await judge(ACTION, SEEN)
    return score


async def test_a_client_of_another_kind_is_asked_with_the_filled_prompt() -> None:
    client = Client("Score (0-1): 0.8")
    judge = LLMJudge(PROMPT, client)
    assert await judged(judge) == 0.8
    assert judge.last_score == 0.8
    assert client.prompts == ["Rate 6 * 7 = 42 for math. Score (0-1):"]


@pytest.mark.parametrize("text", ["", "good", "0.2 or 0.9", '{"score": 0.', '{"score": NaN}'])
async def test_an_answer_without_a_score_is_an_error_unless_a_default_is_asked_for(text: str) -> None:
    with pytest.raises(JudgeError, match="only 0 of 1 votes of the judge can be read"):
        await judged(LLMJudge(PROMPT, Client(text)))
    assert await judged(LLMJudge(PROMPT, Client(text), default_score=0.0)) == 0.0


@pytest.mark.parametrize(("text", "score", "raw"), [("1.5", 1.0, 1.5), ("-0.5", 0.0, -0.5), ("8/10", 0.8, 0.8)])
async def test_scores_are_clipped_to_the_unit_interval_unless_they_need_not_be(text: str, score: float, raw: float) -> None:
    assert await judged(LLMJudge(PROMPT, Client(text))) == score
    assert await judged(LLMJudge(PROMPT, Client(text), normalize=False)) == raw


async def test_with_a_scale_a_score_comes_as_it_is_and_one_outside_is_an_error() -> None:
    judge = LLMJudge(PROMPT, Client("4"), scale=(1, 5))
    assert (judge.scale, await judged(judge)) == ((1, 5), 4.0)
    with pytest.raises(JudgeError):
        await judged(LLMJudge(PROMPT, Client("7"), scale=(1, 5)))
    with pytest.raises(ConfigError, match="scale"):
        LLMJudge(PROMPT, Client(), scale=(5, 1))


async def test_a_pattern_decides_alone_what_the_score_is() -> None:
    client = Client('{"score": 1} <s>0.25</s>', "Score: 1")
    judge = LLMJudge(PROMPT, client, score_pattern=r"<s>([\d.]+)</s>")
    assert await judged(judge) == 0.25
    with pytest.raises(JudgeError):
        await judged(judge)


async def test_a_model_of_ours_is_held_to_a_form_and_gives_its_reasons() -> None:
    async with service(obeying(lambda _: {"reasoning": "7 times 6", "score": 0.75})) as model:
        score = await judged(LLMJudge(PROMPT, OpenAICompatible(model.base_url, "m"), system="Be strict."))
        [asked] = model.asked
    assert (score, score.extra) == (0.75, {"reasoning": "7 times 6"})
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert asked["structured_outputs"]["json"]["properties"]["score"] == {"type": "number", "minimum": 0.0, "maximum": 1.0}


async def test_the_form_has_the_scale() -> None:
    async with service(obeying(lambda _: {"reasoning": "", "score": 4})) as model:
        assert await judged(LLMJudge(PROMPT, OpenAICompatible(model.base_url, "m"), scale=(1, 5))) == 4.0


async def test_what_an_answer_cost_is_recorded_when_it_can_not_be_read() -> None:
    async with service(completion('{"reasoning": "so lo', USAGE)) as model:
        with usage_recorded() as ledger, pytest.raises(JudgeError):
            await judged(LLMJudge(PROMPT, OpenAICompatible(model.base_url, "m")))
        assert (ledger.total.calls, ledger.total.prompt_tokens) == (1, 100)


async def test_of_several_votes_the_mean_counts_and_the_extra_says_how_far_they_agree() -> None:
    texts = ['{"reasoning": "a", "score": 1}', '{"reasoning": "b", "score": 0.5}', "?", '{"reasoning": "c", "score": 1}']
    async with service(completions(texts, USAGE)) as model:
        score = await judged(LLMJudge(PROMPT, OpenAICompatible(model.base_url, "m"), votes=4))
        assert model.asked[0]["n"] == 4
    assert score == pytest.approx(2.5 / 3)
    assert score.extra == {"reasoning": "a", "votes": [1.0, 0.5, 1.0], "agreement": pytest.approx(2 / 3), "unreadable": 1}


async def test_votes_of_which_half_can_not_be_read_are_no_verdict() -> None:
    with pytest.raises(JudgeError, match="only 1 of 2 votes"):
        await judged(LLMJudge(PROMPT, Client("0.5", "?"), votes=2))
    assert await judged(LLMJudge(PROMPT, Client("0.5", "1", "?"), votes=3)) == 0.75


async def test_a_client_that_hangs_is_an_error_in_time() -> None:
    class Hanging:
        async def complete(self, prompt: str) -> str:
            await asyncio.Event().wait()
            return prompt

    with pytest.raises(JudgeError, match=r"did not answer within 0\.05 s"):
        await judged(LLMJudge(PROMPT, Hanging(), timeout_s=0.05))


@pytest.mark.parametrize("answer", [None, 0.5, b"0.5"])
async def test_a_client_that_returns_no_text_is_an_error(answer: object) -> None:
    with pytest.raises(JudgeError, match=r"Client\.complete must return text"):
        await judged(LLMJudge(PROMPT, Client(answer)))


@pytest.mark.parametrize("error", [ConnectionError("gone"), TimeoutError("its own")])
async def test_what_a_client_raises_comes_through(error: Exception) -> None:
    class Broken:
        async def complete(self, prompt: str) -> str:
            raise error

    with pytest.raises(type(error), match=str(error)):
        await judged(LLMJudge(PROMPT, Broken()))


def test_settings_that_can_not_work_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="placeholder"):
        LLMJudge("Rate {actoin}", Client())
    with pytest.raises(ConfigError, match="no regular expression"):
        LLMJudge(PROMPT, Client(), score_pattern="(")
    with pytest.raises(ConfigError, match="votes=0"):
        LLMJudge(PROMPT, Client(), votes=0)


def test_settings_survive_a_checkpoint() -> None:
    judge = LLMJudge(PROMPT, Client(), score_pattern=r"\d", default_score=0.5, normalize=False)
    other = LLMJudge("{action}", Client())
    other.load_state_dict(judge.state_dict())
    assert other.state_dict() == judge.state_dict()
    assert other.state_dict() == {
        "prompt_template": PROMPT,
        "score_pattern": r"\d",
        "default_score": 0.5,
        "normalize": False,
    }

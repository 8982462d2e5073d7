"""recipes/rinker_twenty_questions: what a game is, and that a questioner learns to ask."""

from __future__ import annotations

from math import log2
from pathlib import Path

import pytest

from recipes.rinker_twenty_questions.game import (
    NUMBERS,
    RULES,
    Answerer,
    ByModel,
    QuestionerEnv,
    by_the_rules,
    token,
    truth,
    word,
)
from recipes.rinker_twenty_questions.make import make
from recipes.rinker_twenty_questions.two_models import summary, taught_answerer
from reward_loop import rinker
from reward_loop.rinker.loops.observer import RunResult
from reward_loop.rinker.rendering import TinkerTokenCompleter
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.train import train_rl
from tests.one_thread import one_thread as one_thread
from tests.recipes.rinker_runs import ROOT, mean, settings, values

BUILDER = f"data.builder={ROOT / 'recipes' / 'rinker_twenty_questions' / 'game.py'}"


def test_the_questions_tell_all_numbers_apart() -> None:
    assert len({tuple(truth(question, number) for question in RULES) for number in range(NUMBERS)}) == NUMBERS


async def earned(answerer: Answerer, *words: str) -> list[float | None]:
    env = QuestionerEnv(5, answerer)
    return [(await env.step([token(one)])).reward for one in words]


async def test_a_question_earns_by_how_many_numbers_it_rules_out() -> None:
    assert await earned(by_the_rules, "odd?", "odd?", "high?", "5") == pytest.approx([1 / 6, 0, 1 / 6, 1])
    assert await earned(by_the_rules, *RULES, "4") == pytest.approx([1 / 6, 1 / 6, 1 / 6, 0])
    assert sum(filter(None, await earned(by_the_rules, "5", "0", "yes", "5"))) == pytest.approx(1.5)


async def test_an_answerer_that_contradicts_itself_ruins_no_game() -> None:
    async def always_no(question: int, secret: int) -> int:
        return token("no")

    assert await earned(always_no, "0", "1", "2", "5") == pytest.approx([log2(8 / 7) / 6, log2(7 / 6) / 6, log2(6 / 5) / 6, 1])
    assert (await earned(always_no, *RULES, "5"))[-1] == 1.0


async def test_a_model_can_be_taught_to_answer(tmp_path: Path) -> None:
    with rinker.ServiceClient(checkpoint_dir=tmp_path / "weights") as service:
        answerer = ByModel(TinkerTokenCompleter(taught_answerer(service, make(tmp_path)), max_tokens=1, temperature=0.0))
        said = [[await answerer(token(question), secret) for secret in range(NUMBERS)] for question in RULES]
    assert said == [[token("yes" if truth(question, secret) else "no") for secret in range(NUMBERS)] for question in RULES]


def test_two_steps_of_training(tmp_path: Path) -> None:
    make(tmp_path)
    config = settings(RLConfig, "rinker_twenty_questions", tmp_path, BUILDER, "data.kwargs.batches=2", "batch_size=1")
    result = train_rl(config)
    assert len(values(tmp_path, "reward/total")) == 2
    won = values(tmp_path, "env/all/right")[-1]
    assert summary(result) == f"2 steps; of the last games {won:.0%} were won"
    assert summary(train_rl(config)) == "2 steps, all of them made before"


def test_what_is_won_is_said_in_games_and_not_in_rewards() -> None:
    won = RunResult(2, {"reward/total": 1.5, "env/all/reward/total": 1.5, "env/all/right": 1.0})
    assert summary(won) == "2 steps; of the last games 100% were won"


@pytest.mark.slow
def test_a_questioner_learns_to_ask(tmp_path: Path) -> None:
    make(tmp_path)
    train_rl(settings(RLConfig, "rinker_twenty_questions", tmp_path, BUILDER))
    right = values(tmp_path, "env/all/right")
    assert mean(right[:5]) < 0.2
    assert mean(right[-10:]) > 0.35


async def test_a_game_is_three_questions_and_a_number() -> None:
    env = QuestionerEnv(5, by_the_rules)
    seen = (await env.initial_observation())[0].length
    for question in ("odd?", "4", "high?"):
        result = await env.step([token(question)])
        assert not result.episode_done
        assert result.next_observation.length == seen + 2
        seen = result.next_observation.length
    said = [word(one) for one in result.next_observation.to_ints()[1:]]
    assert said == ["odd?", "yes", "4", "no", "high?", "yes"]
    last = await env.step([token("5")])
    assert last.episode_done
    assert last.metrics["right"] == 1.0

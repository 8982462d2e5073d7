"""recipes/rinker_sl_basic: the loss falls, and what was trained answers questions that it has never seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipes.rinker_sl_basic.ask import Answer, ask
from recipes.rinker_sl_basic.make import conversations, make
from reward_loop.rinker.sl.config import SLConfig
from reward_loop.rinker.sl.train import train_sl
from tests.one_thread import one_thread as one_thread
from tests.recipes.rinker_runs import mean, settings, values


def right(answers: list[Answer]) -> int:
    return sum(answer == wanted for _, answer, wanted in answers)


def test_no_question_is_asked_twice() -> None:
    questions = [row["messages"][0]["content"] for row in conversations()]
    assert len(set(questions)) == len(questions)


def test_the_loss_falls_and_the_run_can_be_asked(tmp_path: Path) -> None:
    make(tmp_path)
    train_sl(settings(SLConfig, "rinker_sl_basic", tmp_path, "max_steps=24", "eval_every=12"))
    losses = values(tmp_path, "train_mean_nll")
    assert mean(losses[-5:]) < 0.6 * mean(losses[:5])
    assert len(values(tmp_path, "test/nll")) == 2
    found = ask(tmp_path)
    assert [len(answers) for answers in found.values()] == [29, 29]


@pytest.mark.slow
def test_it_answers_what_it_has_never_seen(tmp_path: Path) -> None:
    make(tmp_path)
    train_sl(settings(SLConfig, "rinker_sl_basic", tmp_path))
    found = ask(tmp_path)
    assert right(found["before"]) == 0
    assert right(found["after"]) >= 24

"""Settings of a training and its learning rate."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.errors import TrainingError
from reward_loop.training.readout import Readout
from reward_loop.training.settings import TrainingSettings, learning_rate_factor


def test_the_learning_rate_rises_in_the_warm_up_and_falls_to_the_end() -> None:
    factors = [learning_rate_factor(step, 10, 4) for step in range(10)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    assert [learning_rate_factor(step, 2, 0) for step in range(2)] == [1.0, 0.5]


def test_a_training_shorter_than_its_warm_up_rises_only() -> None:
    assert [learning_rate_factor(step, 2, 4) for step in range(2)] == [0.25, 0.5]
    assert [learning_rate_factor(step, 2, 2) for step in range(2)] == [0.5, 1.0]


def test_steps_are_given_or_follow_from_epochs() -> None:
    assert TrainingSettings(steps=7).total_steps(1000) == 7
    assert TrainingSettings(epochs=2, batch_pairs=64).total_steps(1000) == 31
    assert TrainingSettings(epochs=0.001).total_steps(1000) == 1


@pytest.mark.parametrize(
    "wrong", [{"learning_rate": 0.0}, {"steps": 0}, {"batch_pairs": -1}, {"learning_rate": float("inf")}, {"checkpoint_every": 0}]
)
def test_what_must_be_positive_is(wrong: dict[str, Any]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(TrainingError, match=f"{name}={value} must be positive"):
        TrainingSettings(**wrong)


def test_what_must_not_be_negative_is_not() -> None:
    with pytest.raises(TrainingError, match="warmup_steps=-1 must not be negative"):
        TrainingSettings(warmup_steps=-1)


def test_only_what_the_weights_depend_on_decides() -> None:
    assert TrainingSettings(micro_batch_pairs=2, keep_checkpoints=9).what_decides() == TrainingSettings().what_decides()
    assert TrainingSettings(readout=Readout(label=1)).what_decides() != TrainingSettings().what_decides()

"""The course of the learning rate."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from reward_loop.rinker.loops.config import AdamConfig
from reward_loop.rinker.loops.learning_rate import Schedule, factor
from reward_loop.rinker.types import AdamParams


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1.0, 1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_it_rises_over_the_warm_up_and_then_does_what_the_schedule_says(schedule: Schedule, expected: list[float]) -> None:
    assert [factor(schedule, step, 6, 2) for step in range(6)] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_a_run_shorter_than_its_warm_up_only_rises(schedule: Schedule) -> None:
    assert [factor(schedule, step, 2, 4) for step in range(2)] == [0.25, 0.5]


def test_a_step_is_made_with_the_sdks_parameters() -> None:
    assert AdamConfig().params(0, 10) == AdamParams()
    config = AdamConfig(learning_rate=1e-2, schedule="linear", grad_clip_norm=1.0)
    assert config.params(5, 10) == AdamParams(learning_rate=5e-3, grad_clip_norm=1.0)


@pytest.mark.parametrize("name", ["learning_rate", "eps"])
def test_what_no_step_can_be_made_with_is_refused_before_anything_is_sampled(name: str) -> None:
    with pytest.raises(ValidationError, match="greater than 0"):
        AdamConfig.model_validate({name: 0})

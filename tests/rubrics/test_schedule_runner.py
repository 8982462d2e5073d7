"""Keeping weights on schedule: what is sent when, also after a resume, and when sending fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from reward_loop.errors import ConfigError, ServerUnavailable
from reward_loop.rubrics.schedule_runner import ScheduleRunner

SCHEDULES: dict[str, Any] = {"shaping": {"type": "piecewise", "points": [[1000, 1.0], [5000, 0.0]]}, "outcome": 1.0}


class Pipeline:
    """Keeps the weights that it gets; fails while it is `down`."""

    def __init__(self) -> None:
        self.got = list[dict[str, float]]()
        self.down = False

    def update(self, weights: dict[str, float]) -> None:
        if self.down:
            raise ServerUnavailable("no configuration answers")
        self.got.append(weights)

    async def update_later(self, weights: dict[str, float]) -> None:
        self.update(weights)


def run(runner: ScheduleRunner, episodes: Iterable[int]) -> dict[int, dict[str, float]]:
    """What was sent, by episode, without what was nothing."""
    return {episode: sent for episode in episodes if (sent := runner.step(episode))}


def test_the_first_step_sends_everything_and_later_ones_what_has_changed() -> None:
    pipeline = Pipeline()
    sent = run(ScheduleRunner(SCHEDULES, pipeline.update, every=100), range(1301))
    assert sent == {
        0: {"shaping": 1.0, "outcome": 1.0},
        1100: {"shaping": pytest.approx(0.975)},
        1200: {"shaping": pytest.approx(0.95)},
        1300: {"shaping": pytest.approx(0.925)},
    }
    assert pipeline.got == list(sent.values())


def test_a_resumed_run_sends_at_once_what_an_uninterrupted_one_has() -> None:
    resumed = ScheduleRunner(SCHEDULES, Pipeline().update, every=100)
    assert resumed.step(1234) == {"shaping": pytest.approx(0.95), "outcome": 1.0}
    assert run(resumed, range(1235, 1301)) == {1300: {"shaping": pytest.approx(0.925)}}


def test_episodes_may_come_in_batches_that_skip_the_hundreds() -> None:
    runner = ScheduleRunner(SCHEDULES, Pipeline().update, every=100)
    assert list(run(runner, range(0, 1400, 64))) == [0, 1152, 1216, 1344]


def test_what_could_not_be_sent_stays_due() -> None:
    pipeline = Pipeline()
    runner = ScheduleRunner(SCHEDULES, pipeline.update)
    pipeline.down = True
    with pytest.raises(ServerUnavailable):
        runner.step(3000)
    pipeline.down = False
    assert runner.step(3001) == {"shaping": pytest.approx(0.49975), "outcome": 1.0}


async def test_an_update_may_be_awaited() -> None:
    pipeline = Pipeline()
    runner = ScheduleRunner(SCHEDULES, pipeline.update_later)
    assert await runner.astep(5000) == {"shaping": 0.0, "outcome": 1.0}
    assert await runner.astep(5001) == {}
    assert pipeline.got == [{"shaping": 0.0, "outcome": 1.0}]


async def test_an_update_that_has_to_be_awaited_is_refused_where_nobody_awaits_it() -> None:
    runner = ScheduleRunner(SCHEDULES, Pipeline().update_later)
    with pytest.raises(ConfigError, match="astep"):
        runner.step(0)


def test_what_is_wrong_is_said_before_the_first_step() -> None:
    with pytest.raises(ConfigError, match="every=0"):
        ScheduleRunner({}, print, every=0)
    with pytest.raises(ConfigError, match="'shaping'"):
        ScheduleRunner({"shaping": "fast"}, print)  # type: ignore[dict-item]

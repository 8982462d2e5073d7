"""How long each stage was at work."""

from __future__ import annotations

from reward_loop.rinker.rl.stage_clock import StageClock


class Clock:
    """A time that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_runs_side_by_side_counts_once_and_a_lap_cuts_what_goes_on() -> None:
    time = Clock()
    clock = StageClock(time)
    with clock.at("sampling"):
        time.now = 1.0
        with clock.at("sampling"), clock.at("scoring"):
            time.now = 3.0
        assert clock.lap() == {"time/sampling": 3.0, "time/scoring": 2.0, "time/train_step": 0.0}
        time.now = 4.0
    time.now = 9.0
    assert clock.lap() == {"time/sampling": 1.0, "time/scoring": 0.0, "time/train_step": 0.0}

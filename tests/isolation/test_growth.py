"""How many samples a process has ahead of it, and when one looks stuck."""

from __future__ import annotations

import pytest

from reward_loop.isolation.growth import SampleTime, handed_over, niceness, stuck_after


def test_before_anything_is_known_samples_are_handed_over_one_by_one() -> None:
    assert handed_over(None, waiting=1000, processes=2) == 1


@pytest.mark.parametrize(
    ("mean_s", "waiting", "processes", "samples"),
    [
        (0.001, 1000, 2, 11),  # about 10 ms of work
        (0.00001, 1000, 2, 64),  # never more than 64
        (1.0, 1000, 2, 1),
        (0.001, 8, 2, 3),  # so few that all processes get some
        (0.001, 0, 2, 1),
    ],
)
def test_a_process_is_handed_over_ten_milliseconds_of_work(mean_s: float, waiting: int, processes: int, samples: int) -> None:
    assert handed_over(mean_s, waiting, processes) == samples


def test_a_sample_looks_stuck_when_it_takes_many_times_what_samples_take() -> None:
    assert stuck_after(0.1, timeout_s=300.0, processes=2, usual=2) == pytest.approx(1.0)
    assert stuck_after(0.00001, timeout_s=300.0, processes=2, usual=2) == pytest.approx(0.02)  # noise is no sign


def test_before_any_sample_has_ended_suspicion_grows_slowly() -> None:
    suspicious = [stuck_after(None, timeout_s=100.0, processes=processes, usual=2) for processes in (2, 4, 6, 8)]
    assert suspicious == [5.0, 10.0, 20.0, 40.0]


def test_without_a_deadline_and_without_experience_nothing_looks_stuck() -> None:
    assert stuck_after(None, timeout_s=None, processes=2, usual=2) == float("inf")


def test_stuck_processes_yield_the_more_the_more_of_them_there_are() -> None:
    assert [niceness(stuck, usual=2) for stuck in (0, 1, 2, 10)] == [0, 3, 6, 13]
    assert niceness(10_000, usual=1) == 19


def test_the_mean_follows_what_samples_take() -> None:
    time = SampleTime()  # knows nothing yet
    time.ended(2.0)
    assert time.mean_s == 2.0
    for _ in range(200):
        time.ended(1.0)
    assert time.mean_s == pytest.approx(1.0, abs=0.01)

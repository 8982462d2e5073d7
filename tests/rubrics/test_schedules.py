"""Schedules: values at episodes, and descriptions that are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError
from reward_loop.rubrics.schedules import schedule_of

SHAPING = {"type": "piecewise", "points": [[1000, 1.0], [5000, 0.0]]}


@pytest.mark.parametrize("kind", [SHAPING, {"type": "linear", "episodes": [1000, 5000], "values": [1.0, 0.0]}])
@pytest.mark.parametrize(
    ("episode", "weight"), [(0, 1.0), (999, 1.0), (1000, 1.0), (3000, 0.5), (4999, 0.00025), (5000, 0.0), (9999, 0.0)]
)
def test_the_seeds_shaping_weight(kind: dict[str, Any], episode: int, weight: float) -> None:
    assert schedule_of(kind)(episode) == pytest.approx(weight, abs=1e-12)


def test_piecewise_goes_straight_from_point_to_point() -> None:
    schedule = schedule_of({"type": "piecewise", "points": [[0, 0.0], [10, 1.0], [30, -1.0]]})
    assert [schedule(episode) for episode in (0, 5, 10, 20, 30, 31)] == [0.0, 0.5, 1.0, 0.0, -1.0, -1.0]


def test_step_holds_each_value_until_the_next() -> None:
    schedule = schedule_of({"type": "step", "points": [[10, 1.0], [20, 0.5], [30, 0.0]]})
    assert [schedule(episode) for episode in (0, 9, 10, 19, 20, 29, 30, 99)] == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.0, 0.0]


def test_cosine_is_slow_at_both_ends_and_half_way_in_the_middle() -> None:
    schedule = schedule_of({"type": "cosine", "episodes": [0, 100], "values": [1.0, 0.0]})
    assert [schedule(0), schedule(100), schedule(1000)] == [1.0, 0.0, 0.0]
    assert schedule(50) == pytest.approx(0.5)
    assert schedule(25) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert schedule(10) > 0.9 + 0.05


def test_a_number_is_a_constant() -> None:
    assert [schedule_of(0.5)(0), schedule_of({"type": "constant", "value": 2})(10**9)] == [0.5, 2.0]


def test_a_schedule_is_its_own_description() -> None:
    schedule = schedule_of(SHAPING)
    assert schedule_of(schedule) is schedule


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "liner", "episodes": [0, 1], "values": [0, 1]}, "did you mean 'linear'"),
        ({"points": [[0, 1.0]]}, "known are constant"),
        ({"type": ["linear"]}, "type of schedule"),
        ({"type": "piecewise", "points": []}, "points"),
        ({"type": "piecewise", "points": [[5, 1.0], [5, 0.0]]}, "later than the one before"),
        ({"type": "step", "points": [[5, 1.0], [4, 0.0]]}, "later than the one before"),
        ({"type": "piecewise", "points": [[-1, 1.0]]}, "points.0.0"),
        ({"type": "piecewise", "points": [[0.5, 1.0]]}, "points.0.0"),
        ({"type": "piecewise", "points": [[0, "1"]]}, "points.0.1"),
        ({"type": "piecewise", "points": [[0, True]]}, "points.0.1"),
        ({"type": "piecewise", "points": [[0, float("nan")]]}, "finite"),
        ({"type": "linear", "episodes": [9, 9], "values": [0, 1]}, "later"),
        ({"type": "linear", "episodes": [0, 9]}, "values"),
        ({"type": "linear", "episodes": [0, 9], "values": [0, 1], "vlaues": 3}, "vlaues"),
        ({"type": "constant", "value": None}, "value"),
        (float("inf"), "finite"),
        ("0.5", "value"),
        (True, "value"),
        (None, "value"),
    ],
)
def test_a_description_that_is_wrong_is_refused_with_its_place(given: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        schedule_of(given, "the schedule of 'shaping'")
    assert said in str(error.value)
    assert "'shaping'" in str(error.value)


finite = st.floats(allow_nan=False, allow_infinity=False)
points = st.dictionaries(st.integers(0, 10_000), finite, min_size=1, max_size=5).map(lambda d: sorted(d.items()))


@given(st.sampled_from(["piecewise", "step"]), points, st.integers(0, 20_000))
def test_every_value_is_finite_between_those_of_its_points_and_exact_at_them(
    kind: str, points: list[tuple[int, float]], episode: int
) -> None:
    schedule = schedule_of({"type": kind, "points": points})
    values = [value for _, value in points]
    largest = max(map(abs, values))
    assert math.isfinite(schedule(episode))
    assert min(values) - 1e-9 * largest <= schedule(episode) <= max(values) + 1e-9 * largest
    assert [schedule(at) for at, _ in points] == values

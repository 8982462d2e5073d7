"""Which worker takes the next piece of work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reward_loop.router.booking import LeastBooked


def test_the_least_loaded_worker_is_next() -> None:
    policy = LeastBooked(["a", "b"])
    assert policy.acquire(3, 10) == "a"
    assert policy.acquire(1, 10) == "b"
    assert policy.acquire(1, 10) == "b"
    assert policy.acquire(1, 10) == "b"
    assert policy.in_flight == {"a": 3, "b": 3}


def test_equals_take_turns() -> None:
    policy = LeastBooked(["a", "b", "c"])
    assert [policy.acquire(1, 10) for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_one_that_was_used_and_released_comes_after_its_equals() -> None:
    policy = LeastBooked(["a", "b", "c"])
    taken = []
    for _ in range(4):
        worker = policy.acquire(1, 10)
        assert worker is not None
        policy.release(worker, 1)
        taken.append(worker)
    assert taken == ["a", "b", "c", "a"]


def test_nobody_takes_what_would_be_too_much_everywhere() -> None:
    policy = LeastBooked(["a", "b"])
    assert [policy.acquire(2, 3) for _ in range(3)] == ["a", "b", None]
    assert policy.in_flight == {"a": 2, "b": 2}
    assert policy.acquire(1, 3) == "a"


def test_an_idle_worker_takes_any_load() -> None:
    policy = LeastBooked(["a"])
    assert policy.acquire(100, 3) == "a"
    assert policy.acquire(1, 3) is None
    policy.release("a", 100)
    assert policy.acquire(100, 3) == "a"


def test_what_is_handed_out_is_a_copy() -> None:
    policy = LeastBooked(["a"])
    policy.in_flight["a"] = 7
    assert policy.in_flight == {"a": 0}


steps = st.one_of(st.tuples(st.just("acquire"), st.integers(1, 8)), st.tuples(st.just("release"), st.integers(0, 99)))


@given(st.integers(1, 5), st.lists(steps, max_size=60))
def test_loads_are_never_negative_and_sum_to_what_is_booked(workers: int, script: list[tuple[str, int]]) -> None:
    policy = LeastBooked(range(workers))
    booked: list[tuple[int, int]] = []
    for action, number in script:
        if action == "release":
            if booked:
                policy.release(*booked.pop(number % len(booked)))
        else:
            before = policy.in_flight
            worker = policy.acquire(number, 10)
            if worker is None:
                assert all(load and load + number > 10 for load in before.values())
            else:
                assert before[worker] == min(before.values())
                booked.append((worker, number))
        loads = policy.in_flight
        assert set(loads) == set(range(workers))
        assert min(loads.values()) >= 0
        assert sum(loads.values()) == sum(load for _, load in booked)

"""Which replica takes the next piece of work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reward_loop.router.policies import LeastLoad


def test_the_least_loaded_replica_is_next() -> None:
    policy = LeastLoad(["a", "b"])
    assert policy.acquire(3, 10) == "a"
    assert policy.acquire(1, 10) == "b"
    assert policy.acquire(1, 10) == "b"
    assert policy.acquire(1, 10) == "b"
    assert policy.in_flight == {"a": 3, "b": 3}


def test_equals_take_turns() -> None:
    policy = LeastLoad(["a", "b", "c"])
    assert [policy.acquire(1, 10) for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_one_that_was_used_and_released_comes_after_its_equals() -> None:
    policy = LeastLoad(["a", "b", "c"])
    taken = []
    for _ in range(4):
        replica = policy.acquire(1, 10)
        assert replica is not None
        policy.release(replica, 1)
        taken.append(replica)
    assert taken == ["a", "b", "c", "a"]


def test_nobody_takes_what_would_be_too_much_everywhere() -> None:
    policy = LeastLoad(["a", "b"])
    assert [policy.acquire(2, 3) for _ in range(3)] == ["a", "b", None]
    assert policy.in_flight == {"a": 2, "b": 2}
    assert policy.acquire(1, 3) == "a"


def test_an_idle_replica_takes_any_load() -> None:
    policy = LeastLoad(["a"])
    assert policy.acquire(100, 3) == "a"
    assert policy.acquire(1, 3) is None
    policy.release("a", 100)
    assert policy.acquire(100, 3) == "a"


def test_what_is_handed_out_is_a_copy() -> None:
    policy = LeastLoad(["a"])
    policy.in_flight["a"] = 7
    assert policy.in_flight == {"a": 0}


steps = st.one_of(st.tuples(st.just("acquire"), st.integers(1, 8)), st.tuples(st.just("release"), st.integers(0, 99)))


@given(st.integers(1, 5), st.lists(steps, max_size=60))
def test_loads_are_never_negative_and_sum_to_what_is_booked(replicas: int, script: list[tuple[str, int]]) -> None:
    policy = LeastLoad(range(replicas))
    booked: list[tuple[int, int]] = []
    for action, number in script:
        if action == "release":
            if booked:
                policy.release(*booked.pop(number % len(booked)))
        else:
            before = policy.in_flight
            replica = policy.acquire(number, 10)
            if replica is None:
                assert all(load and load + number > 10 for load in before.values())
            else:
                assert before[replica] == min(before.values())
                booked.append((replica, number))
        loads = policy.in_flight
        assert set(loads) == set(range(replicas))
        assert min(loads.values()) >= 0
        assert sum(loads.values()) == sum(load for _, load in booked)

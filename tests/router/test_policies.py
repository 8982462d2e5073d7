"""Who of several replicas gets a request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import RouterError
from reward_loop.router.policies import ConsistentHash, LeastLoad, PowerOfTwo, RoundRobin, policy_named


@dataclass(slots=True)
class Server:
    url: str
    in_flight: int = 0
    latency_s: float = 0.0


def servers(*loads: tuple[int, float]) -> list[Server]:
    return [Server(f"http://127.0.0.1:{8000 + number}", *load) for number, load in enumerate(loads)]


def test_the_one_that_would_be_done_first_is_next() -> None:
    fast, slow = servers((3, 0.1), (0, 0.5))
    policy = LeastLoad()
    assert policy.choose([fast, slow], 0.2, b"") is fast
    fast.in_flight = 5
    assert policy.choose([fast, slow], 0.2, b"") is slow


def test_an_unknown_latency_counts_as_the_typical_one() -> None:
    known, unknown = servers((0, 0.1), (0, 0.0))
    policy = LeastLoad()
    assert policy.choose([known, unknown], 0.3, b"") is known
    assert policy.choose([known, unknown], 0.05, b"") is unknown


def test_equals_take_turns() -> None:
    three = servers((0, 0.0), (0, 0.0), (0, 0.0))
    policy = LeastLoad()
    assert Counter(policy.choose(three, 0.0, b"").url for _ in range(30)) == {one.url: 10 for one in three}


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.001, 10.0)), min_size=1, max_size=6), st.integers(0, 7))
def test_nobody_else_would_be_done_before_the_one_that_is_chosen(loads: list[tuple[int, float]], calls: int) -> None:
    candidates = servers(*loads)
    policy = LeastLoad()
    for _ in range(calls):
        policy.choose(candidates, 1.0, b"")
    chosen = policy.choose(candidates, 1.0, b"")
    assert (chosen.in_flight + 1) * chosen.latency_s == min((one.in_flight + 1) * one.latency_s for one in candidates)


def test_round_robin_takes_each_in_turn_whatever_its_load() -> None:
    three = servers((9, 9.0), (0, 0.1), (0, 0.1))
    policy = RoundRobin()
    assert [policy.choose(three, 0.0, b"") for _ in range(6)] == three * 2


def test_power_of_two_never_takes_the_worst_of_three_and_is_the_same_for_the_same_seed() -> None:
    three = servers((9, 0.1), (1, 0.1), (2, 0.1))
    choices = [[policy.choose(three, 0.0, b"").url for _ in range(50)] for policy in (PowerOfTwo(7), PowerOfTwo(7))]
    assert choices[0] == choices[1]
    assert set(choices[0]) == {three[1].url, three[2].url}
    assert PowerOfTwo().choose(three[:1], 0.0, b"") is three[0]


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=30), st.permutations(range(4)), st.integers(0, 3))
def test_a_key_stays_where_it_is_whatever_the_load_the_order_and_whoever_else_goes(
    keys: list[bytes], order: list[int], gone: int
) -> None:
    four = servers((0, 0.0), (0, 0.0), (0, 0.0), (0, 0.0))
    policy = ConsistentHash()
    homes = {key: policy.choose(four, 0.0, key) for key in keys}
    for number, one in enumerate(four):
        one.in_flight, one.latency_s = number * 7, number * 1.0
    left = [four[number] for number in order if number != gone]
    for key, home in homes.items():
        assert policy.choose([four[number] for number in order], 9.0, key) is home
        if home is not four[gone]:
            assert policy.choose(left, 0.0, key) is home


def test_keys_are_spread_evenly() -> None:
    three = servers((0, 0.0), (0, 0.0), (0, 0.0))
    policy = ConsistentHash()
    share = Counter(policy.choose(three, 0.0, number.to_bytes(16)).url for number in range(3000))
    assert all(850 < count < 1150 for count in share.values())


def test_a_policy_that_is_none_is_refused() -> None:
    assert isinstance(policy_named("round_robin"), RoundRobin)
    with pytest.raises(RouterError, match="'fastest'"):
        policy_named("fastest")

"""Which replicas there are, who gets requests, and what the end of an attempt changes about that."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import RouterError
from reward_loop.router.ejection import SUSPICIOUS_REJECTS, Ejection
from reward_loop.router.fleet import Fleet, Pool, Replica

ONE, TWO = "http://127.0.0.1:8001", "http://127.0.0.1:8002"


def two_active() -> tuple[Fleet, Pool, Replica, Replica]:
    fleet = Fleet()
    for url in (ONE, TWO):
        fleet.add("rm", url)
        fleet.probed(url)
    return fleet, fleet.pools["rm"], fleet.find(ONE), fleet.find(TWO)


def urls(pool: Pool) -> list[str]:
    return [replica.url for replica in pool.active]


@pytest.mark.parametrize("url", ["http://127.0.0.1:8001/", "127.0.0.1:8001", "HTTP://127.0.0.1:8001"])
def test_a_url_has_one_spelling(url: str) -> None:
    fleet = Fleet()
    assert fleet.add("rm", url).url == ONE
    with pytest.raises(RouterError, match="is a replica of 'rm' already"):
        fleet.add("other", ONE)


@pytest.mark.parametrize(
    "url", ["", "https://a:1", "http://a:1/path", "http://a:99999", "http://u:p@a:1", "http://a:1?x", "ftp://a"]
)
def test_a_url_that_no_replica_can_have_is_refused(url: str) -> None:
    with pytest.raises(RouterError, match="the URL of a replica must be"):
        Fleet().add("rm", url)


def test_an_ipv6_url_keeps_its_brackets() -> None:
    replica = Fleet().add("rm", "http://[::1]:8001")
    assert (replica.url, replica.host, replica.port) == ("http://[::1]:8001", "::1", 8001)


def test_only_active_replicas_are_used_and_those_that_start_where_there_are_none() -> None:
    fleet = Fleet()
    fleet.add("rm", ONE)
    fleet.add("rm", TWO)
    pool = fleet.pools["rm"]
    assert urls(pool) == [ONE, TWO]
    fleet.probed(TWO)
    assert urls(pool) == [TWO]
    fleet.drain(TWO)
    assert urls(pool) == [ONE]


@pytest.mark.parametrize("change", ["drain", "sleep", "remove"])
def test_who_is_told_to_stop_gets_nothing_more_until_told_otherwise(change: str) -> None:
    fleet, pool, one, _ = two_active()
    getattr(fleet, change)(ONE)
    assert urls(pool) == [TWO]
    assert one.state == {"drain": "draining", "sleep": "asleep", "remove": "gone"}[change]
    if change != "remove":
        assert fleet.probed(ONE).state == one.state
        fleet.wake(ONE)
        assert urls(pool) == [ONE, TWO]


def test_a_model_without_replicas_is_no_model() -> None:
    fleet, _, _, _ = two_active()
    fleet.remove(ONE)
    fleet.remove(TWO)
    assert (fleet.pools, len(fleet), list(fleet)) == ({}, 0, [])
    with pytest.raises(KeyError):
        fleet.find(ONE)


def test_a_snapshot_is_json() -> None:
    fleet, _, one, _ = two_active()
    one.outcomes["failed"] = 2
    one.outcomes["cut"] = 1
    said = json.loads(json.dumps(fleet.snapshot()))
    assert [replica["url"] for replica in said["replicas"]] == [ONE, TWO]
    assert (said["replicas"][0]["failures"], said["replicas"][0]["state"], said["waiting"]) == (3, "active", {"rm": 0})


def test_failures_in_a_row_eject_and_a_success_forgets_them() -> None:
    fleet, pool, one, _ = two_active()
    ejection = Ejection(fleet, 3)
    ejection.failed(one, "reset")
    ejection.failed(one, "reset")
    ejection.succeeded(pool, one, 1.0, 0.1)
    ejection.failed(one, "reset")
    ejection.failed(one, "reset")
    assert one.state == "active"
    ejection.failed(one, "cut")
    assert (one.state, one.trouble, one.ejections, urls(pool)) == ("ejected", "cut", 1, [TWO])


def test_an_ejected_replica_is_on_trial_until_its_first_success() -> None:
    fleet, pool, one, two = two_active()
    ejection = Ejection(fleet, 1)
    ejection.failed(one, "reset")
    fleet.probed(ONE)
    assert (one.state, one.on_trial) == ("active", True)
    assert pool.candidates(0.0, []) == [one, two]
    one.in_flight = 1
    assert pool.candidates(0.0, []) == [two]
    assert pool.candidates(0.0, [two]) == [one]
    ejection.succeeded(pool, one, 1.0, 0.1)
    assert not one.on_trial
    assert pool.candidates(0.0, []) == [one, two]


def test_where_all_are_ejected_those_that_answer_are_better_than_nobody() -> None:
    fleet, pool, one, two = two_active()
    ejection = Ejection(fleet, 1)
    ejection.failed(one, "reset")
    ejection.failed(two, "it answered 500", answers=True)
    assert urls(pool) == [TWO]


def test_who_is_busy_is_left_alone_for_as_long_as_it_said() -> None:
    fleet, pool, one, two = two_active()
    ejection = Ejection(fleet, 1)
    ejection.busy(pool, one, 10.0, 5.0)
    assert pool.candidates(14.9, []) == [two]
    assert pool.candidates(15.0, []) == [one, two]
    assert pool.candidates(11.0, [two]) == [one]
    assert one.state == "active"
    fleet.tick(16.0, 1.0)
    assert pool.even


def test_who_does_not_say_for_how_long_is_left_alone_longer_each_time() -> None:
    fleet, pool, one, _ = two_active()
    ejection = Ejection(fleet, 1)
    waits = []
    for _ in range(7):
        ejection.busy(pool, one, 0.0, None)
        waits.append(one.busy_until)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    ejection.succeeded(pool, one, 0.0, 0.1)
    ejection.busy(pool, one, 0.0, None)
    assert one.busy_until == 0.1


def test_a_rejection_is_no_failure() -> None:
    fleet, _, one, _ = two_active()
    ejection = Ejection(fleet, 1)
    for _ in range(100):
        ejection.rejected(one)
    assert (one.state, one.failures_in_row) == ("active", 0)


def test_who_rejects_is_suspect_only_where_siblings_succeed_and_it_does_not() -> None:
    fleet, pool, one, two = two_active()
    ejection = Ejection(fleet, 3)
    assert not ejection.is_suspect(pool, one, 0.0)
    ejection.succeeded(pool, two, 0.0, 0.1)
    assert ejection.is_suspect(pool, one, 1.0)
    ejection.succeeded(pool, one, 1.0, 0.1)
    assert not ejection.is_suspect(pool, one, 2.0)
    for _ in range(SUSPICIOUS_REJECTS):
        ejection.rejected(one)
    assert ejection.is_suspect(pool, one, 2.0)
    assert not ejection.is_suspect(pool, two, 2.0)


def test_what_was_known_of_a_latency_drifts_to_the_typical_one() -> None:
    fleet, pool, one, two = two_active()
    ejection = Ejection(fleet, 3)
    ejection.succeeded(pool, one, 0.0, 10.0)
    for moment in range(100):
        ejection.succeeded(pool, two, float(moment), 0.1)
        fleet.tick(float(moment), 1.0)
    assert one.latency_s < 0.3
    assert two.latency_s == pytest.approx(0.1)


changes = st.sampled_from(["drain", "sleep", "wake", "probed", "eject", "eject answers", "remove", "add"])


@given(st.lists(st.tuples(changes, st.sampled_from([ONE, TWO])), max_size=30))
def test_who_may_get_requests_is_always_what_the_states_say(script: list[tuple[str, str]]) -> None:
    fleet, _, _, _ = two_active()
    for change, url in script:
        known = {replica.url for replica in fleet}
        if (change == "add") == (url in known):
            continue
        if change == "add":
            fleet.add("rm", url)
        elif change.startswith("eject"):
            fleet.eject(fleet.find(url), "x", answers=change != "eject")
        else:
            getattr(fleet, change)(url)
        if pool := fleet.pools.get("rm"):
            by_rank = [
                [replica for replica in pool.replicas if replica.state == "active"],
                [replica for replica in pool.replicas if replica.state == "starting"],
                [replica for replica in pool.replicas if replica.state == "ejected" and replica.answers],
                [],
            ]
            assert pool.active == next((rank for rank in by_rank if rank), [])
            assert all(replica.state == "active" for replica in pool.replicas if replica.on_trial)

"""What /metrics says is what the fleet has counted, in a form that Prometheus' own parser reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from reward_loop.router.ejection import Ejection
from reward_loop.router.fleet import Fleet
from reward_loop.router.metrics import Metrics

URL = "http://127.0.0.1:8000"
LABELS = {"model": "rm", "replica": URL}


def read(fleet: Fleet) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by its name and labels."""
    families = text_string_to_metric_families(Metrics(fleet).text().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(fleet: Fleet, name: str, **labels: str) -> float:
    return read(fleet)[f"reward_router_{name}", frozenset(labels.items())]


def test_an_empty_fleet_has_metrics_too() -> None:
    assert value(Fleet(), "client_requests_total") == 0.0


def test_requests_are_counted_by_replica_and_by_how_they_ended() -> None:
    fleet = Fleet()
    replica = fleet.add("rm", URL)
    replica.outcomes["ok"] += 3
    replica.outcomes["cut"] += 1
    assert value(fleet, "requests_total", outcome="ok", **LABELS) == 3.0
    assert value(fleet, "requests_total", outcome="cut", **LABELS) == 1.0
    assert value(fleet, "requests_total", outcome="timeout", **LABELS) == 0.0


def test_the_routers_own_work_is_counted() -> None:
    fleet = Fleet()
    counters = fleet.counters
    counters.requests, counters.retries, counters.hedges, counters.hedges_won, counters.stale = 10, 4, 3, 2, 1
    counters.queued, counters.queued_sum_s = 5, 0.25
    counters.answered["queue_full"] = 7
    found = {
        name: value(fleet, name)
        for name in ("client_requests_total", "retries_total", "hedges_total", "hedges_won_total", "stale_connections_total")
    }
    assert list(found.values()) == [10.0, 4.0, 3.0, 2.0, 1.0]
    assert (value(fleet, "queue_wait_seconds_count"), value(fleet, "queue_wait_seconds_sum")) == (5.0, 0.25)
    assert value(fleet, "answers_total", type="queue_full") == 7.0


def test_latencies_become_a_histogram() -> None:
    fleet = Fleet()
    replica = fleet.add("rm", URL)
    for latency_s in (0.00005, 0.001, 1e6):
        Ejection(fleet, 3).succeeded(fleet.pools["rm"], replica, 1.0, latency_s)
    assert value(fleet, "latency_seconds_count", **LABELS) == 3.0
    assert value(fleet, "latency_seconds_sum", **LABELS) == 0.00005 + 0.001 + 1e6
    buckets = {
        float(dict(labels)["le"]): count for (name, labels), count in read(fleet).items() if name.endswith("seconds_bucket")
    }
    assert buckets[0.0001] == 1.0
    assert buckets[0.0016] == 2.0
    assert buckets[float("inf")] == 3.0
    assert [buckets[bound] for bound in sorted(buckets)] == sorted(buckets.values()), "counts of a histogram add up"


def test_a_replica_is_in_one_state() -> None:
    fleet = Fleet()
    fleet.eject(fleet.add("rm", URL), "down")
    states = {dict(labels)["state"]: count for (name, labels), count in read(fleet).items() if name.endswith("replica_state")}
    assert states["ejected"] == sum(states.values()) == 1.0
    assert value(fleet, "ejections_total", **LABELS) == 1.0


def test_models_have_a_queue_and_replicas_have_a_load() -> None:
    fleet = Fleet()
    fleet.add("rm", URL).in_flight = 6
    fleet.pools["rm"].waiting = 2
    assert value(fleet, "in_flight", **LABELS) == 6.0
    assert value(fleet, "queue_length", model="rm") == 2.0


def test_names_of_models_may_hold_anything() -> None:
    fleet = Fleet()
    fleet.add('odd "name"\n\\', URL)
    assert value(fleet, "queue_length", model='odd "name"\n\\') == 0.0


def test_the_process_itself_is_measured() -> None:
    assert read(Fleet())["process_resident_memory_bytes", frozenset()] > 1e6

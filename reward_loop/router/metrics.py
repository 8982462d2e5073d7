"""What the router has counted, as Prometheus text.

Invariant: nothing is counted here: the data path keeps plain integers in the fleet, and they are read when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import get_args

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from reward_loop.router.fleet import LATENCY_BOUNDS_S, Fleet, State

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_PREFIX = "reward_router_"
_REPLICA = ("model", "replica")
_BOUNDS = [*map(repr, LATENCY_BOUNDS_S), "+Inf"]


class Metrics:
    """Renders a fleet's counters, and those of this process."""

    def __init__(self, fleet: Fleet) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(FleetCollector(fleet))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)


class FleetCollector(Collector):
    """Reads a fleet's counters when it is asked to."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the router, of the models and of the replicas."""
        yield from self._router()
        yield from self._models()
        yield from self._attempts()
        yield from self._replicas()

    def describe(self) -> Iterator[Metric]:
        """Name no metrics beforehand: there is nothing else in the registry that they could clash with."""
        return iter(())

    def _router(self) -> Iterator[Metric]:
        counters = self._fleet.counters
        for name, text, value in (
            ("client_requests", "Requests of clients.", counters.requests),
            ("retries", "Requests sent again, to another replica.", counters.retries),
            ("hedges", "Second copies of slow requests.", counters.hedges),
            ("hedges_won", "Second copies that answered first.", counters.hedges_won),
            ("stale_connections", "Requests sent again because an idle connection had just been closed.", counters.stale),
        ):
            yield CounterMetricFamily(_PREFIX + name, text, value=value)
        answers = CounterMetricFamily(_PREFIX + "answers", "Errors that the router answered itself, by type.", labels=("type",))
        for kind, count in counters.answered.items():
            answers.add_metric((kind,), count)
        yield answers
        wait = "Seconds that requests waited for a replica to be free."
        yield SummaryMetricFamily(_PREFIX + "queue_wait_seconds", wait, counters.queued, counters.queued_sum_s)

    def _models(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(_PREFIX + "queue_length", "Requests that wait for a replica.", labels=("model",))
        for model, pool in self._fleet.pools.items():
            waiting.add_metric((model,), pool.waiting)
        yield waiting

    def _attempts(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            _PREFIX + "requests", "Requests that a replica was sent, by how they ended.", labels=(*_REPLICA, "outcome")
        )
        latency = HistogramMetricFamily(_PREFIX + "latency_seconds", "Seconds until a replica's 2xx.", labels=_REPLICA)
        for replica in self._fleet:
            labels = (replica.model, replica.url)
            for outcome, count in replica.outcomes.items():
                requests.add_metric((*labels, outcome), count)
            counts = accumulate(replica.latency_counts)
            latency.add_metric(labels, list(zip(_BOUNDS, counts, strict=True)), replica.latency_sum_s)
        yield requests
        yield latency

    def _replicas(self) -> Iterator[Metric]:
        in_flight = GaugeMetricFamily(_PREFIX + "in_flight", "Requests that a replica works on.", labels=_REPLICA)
        average = GaugeMetricFamily(_PREFIX + "latency_average_seconds", "Moving average; 0 while unknown.", labels=_REPLICA)
        ejections = CounterMetricFamily(_PREFIX + "ejections", "Times that a replica was ejected.", labels=_REPLICA)
        states = GaugeMetricFamily(_PREFIX + "replica_state", "1 for the state of a replica.", labels=(*_REPLICA, "state"))
        for replica in self._fleet:
            labels = (replica.model, replica.url)
            in_flight.add_metric(labels, replica.in_flight)
            average.add_metric(labels, replica.latency_s)
            ejections.add_metric(labels, replica.ejections)
            for state in get_args(State):
                states.add_metric((*labels, state), float(replica.state == state))
        yield from (in_flight, average, ejections, states)

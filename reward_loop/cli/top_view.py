"""What `reward-loop top` shows: two readings of a router's metrics as one table. Pure: no clock, no I/O.

Invariant: rates and latencies are those between the two readings; what has no requests in between has no latency, not 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table
from rich.text import Text

from reward_loop.errors import RouterError

PREFIX = "reward_router_"
FAILURES = ("failed", "timeout", "cut")
REFUSALS = ("rejected", "busy")
Key = TypeVar("Key")
_STYLES = {"active": "green", "asleep": "blue", "ejected": "bold red"} | dict.fromkeys(
    ("starting", "draining", "waking"), "yellow"
)


@dataclass(slots=True)
class Counts:
    """What a replica, or several together, had done when they were read."""

    state: str = ""
    in_flight: float = 0.0
    outcomes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Attempts by how they ended."""
    buckets: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    """Attempts that took at most so many seconds."""

    def since(self, before: Counts) -> Counts:
        """Return what was done after another reading."""
        return Counts(self.state, self.in_flight, _less(self.outcomes, before.outcomes), _less(self.buckets, before.buckets))

    def ended(self, *outcomes: str) -> float:
        """Return how many attempts ended so; with nothing named, in any way."""
        return sum(count for outcome, count in self.outcomes.items() if not outcomes or outcome in outcomes)

    def latency_s(self, quantile: float) -> float | None:
        """Return the seconds that this share of the attempts took at most; None without attempts."""
        bounds = sorted(self.buckets)
        if not bounds or not (wanted := self.buckets[bounds[-1]] * quantile):
            return None
        low_s, below = 0.0, 0.0
        for bound_s in bounds[:-1]:
            if self.buckets[bound_s] >= wanted:
                return low_s + (bound_s - low_s) * (wanted - below) / (self.buckets[bound_s] - below)
            low_s, below = bound_s, self.buckets[bound_s]
        return low_s  # beyond the last bound: it is all that is known


@dataclass(slots=True)
class Reading:
    """All that a router had counted at a time on some steady clock."""

    at_s: float
    replicas: dict[tuple[str, str], Counts] = field(default_factory=lambda: defaultdict(Counts))
    """By model and address."""
    waiting: dict[str, float] = field(default_factory=dict[str, float])
    """Requests that wait for a replica, by model."""
    totals: dict[str, float] = field(default_factory=dict[str, float])
    """Counters of the router itself, by name."""
    answers: dict[str, float] = field(default_factory=dict[str, float])
    """Errors that the router answered itself, by type."""

    @property
    def requests(self) -> float:
        """How many requests clients have sent; falls only when the router has begun anew."""
        return self.totals.get("client_requests_total", 0.0)


def read_metrics(text: str, at_s: float) -> Reading:
    """Read the Prometheus text of a router; RouterError if it is that of something else."""
    reading = Reading(at_s)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith(PREFIX):
                    _keep(reading, sample.name.removeprefix(PREFIX), sample.labels, sample.value)
    except ValueError as error:
        raise RouterError(f"its /metrics are no Prometheus text: {error}") from error
    if "client_requests_total" not in reading.totals:
        raise RouterError(f"its /metrics hold no {PREFIX}client_requests_total: it is no router of reward-loop")
    return reading


def _keep(reading: Reading, name: str, labels: Mapping[str, str], value: float) -> None:
    if "replica" not in labels:
        if name == "queue_length":
            reading.waiting[labels["model"]] = value
        elif name == "answers_total":
            reading.answers[labels["type"]] = value
        elif not labels:
            reading.totals[name] = value
        return
    counts = reading.replicas[labels["model"], labels["replica"]]
    if name == "in_flight":
        counts.in_flight = value
    elif name == "requests_total":
        counts.outcomes[labels["outcome"]] = value
    elif name == "latency_seconds_bucket":
        counts.buckets[float(labels["le"])] = value
    elif name == "replica_state" and value:
        counts.state = labels["state"]


def view(address: str, before: Reading, now: Reading, troubles: Mapping[str, str]) -> Table:
    """Return the table of what happened between two readings; `troubles` says what is wrong with an address."""
    seconds = now.at_s - before.at_s
    table = Table(title=_summary(address, before, now), caption_justify="left", title_justify="left", title_style="")
    for column in ("model and replica", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("in flight", "queue", "requests/s", "refused/s", "failures/s", "p50", "p99"):
        table.add_column(column, justify="right", no_wrap=True)
    if troubles:
        table.add_column("last trouble")
    done = {key: counts.since(before.replicas.get(key, Counts())) for key, counts in now.replicas.items()}
    for model in sorted({model for model, _ in done} | now.waiting.keys()):
        mine = {url: counts for (of, url), counts in sorted(done.items()) if of == model}
        together = _sum(mine.values())
        states = Text(f"{sum(counts.state == 'active' for counts in mine.values())} of {len(mine)} active")
        waiting = f"{now.waiting.get(model, 0):,.0f}"
        table.add_row(Text(model), states, *_figures(together, seconds, waiting), style="bold")
        for url, counts in mine.items():
            state = Text(counts.state, style=_STYLES.get(counts.state, ""))
            trouble = [Text(troubles.get(url, ""))] if troubles else []
            table.add_row(Text(f"  {url}"), state, *_figures(counts, seconds, ""), *trouble)
        table.add_section()
    return table


def _summary(address: str, before: Reading, now: Reading) -> Text:
    """Return the lines about the router itself."""
    seconds = now.at_s - before.at_s
    rates = {name: (value - before.totals.get(name, 0.0)) / seconds for name, value in now.totals.items()}

    def rate(name: str) -> str:
        return _rate(rates.get(f"{name}_total", 0.0))

    lines = [
        f"router {address}: {rate('client_requests')} requests/s, {rate('retries')} retries/s, "
        f"{rate('hedges')} hedges/s ({rate('hedges_won')} won); since its start {now.requests:,.0f} requests"
    ]
    if refused := {kind: count for kind, count in now.answers.items() if count}:
        lines.append("its own errors since its start: " + ", ".join(f"{count:,.0f} {kind}" for kind, count in refused.items()))
    return Text("\n".join(lines))


def _figures(done: Counts, seconds: float, waiting: str) -> tuple[str, ...]:
    rates = (_rate(done.ended(*outcomes) / seconds) for outcomes in ((), REFUSALS, FAILURES))
    return f"{done.in_flight:,.0f}", waiting, *rates, _latency(done.latency_s(0.5)), _latency(done.latency_s(0.99))


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def _latency(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


def _sum(several: Iterable[Counts]) -> Counts:
    total = Counts()
    for counts in several:
        total.in_flight += counts.in_flight
        for outcome, count in counts.outcomes.items():
            total.outcomes[outcome] += count
        for bound, count in counts.buckets.items():
            total.buckets[bound] += count
    return total


def _less(now: Mapping[Key, float], before: Mapping[Key, float]) -> dict[Key, float]:
    """Return the growth of each count; one that has fallen was begun anew."""
    return {key: value - old if value >= (old := before.get(key, 0.0)) else value for key, value in now.items()}

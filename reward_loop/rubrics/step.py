"""The runs of one step under way, and what they come to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reward_loop.rubrics.composed import Composed
from reward_loop.rubrics.evaluation import Given, discard
from reward_loop.rubrics.run import Run
from reward_loop.rubrics.thread_hop import Pending
from reward_loop.rubrics.weights import Aggregate, contributions


@dataclass(slots=True)
class Step:
    """The rubrics that are due, with the weights of the moment at which it began."""

    runs: list[Run]
    weights: Mapping[str, float]
    pending: list[Pending] = field(default_factory=list[Pending])
    """What has been called and must be awaited."""
    given: Given = field(default_factory=dict[int, Any])

    def drop(self) -> None:
        """Close what will not be awaited."""
        discard(awaitable for _, awaitable in self.pending)

    def composed(self, aggregate: Aggregate) -> Composed:
        """Return what the runs, all of them settled, come to."""
        components: dict[str, float] = {}
        raw: dict[str, float] = {}
        extra: dict[str, Mapping[str, Any]] = {}
        failures: dict[str, str] = {}
        complete = True
        for run in self.runs:
            name = run.entry.name
            if run.error is not None:
                failures[name] = run.error.message
            if not run.counts:
                continue
            if run.scored:
                components[name], raw[name] = run.placed, run.raw
            else:
                complete = False
            if run.extra:
                extra[name] = run.extra
        shares = contributions(components, self.weights, aggregate)
        return Composed(
            reward=math.fsum(shares.values()) if complete else None,
            components=components,
            raw=raw,
            contributions=shares,
            extra=extra,
            failures=failures,
            mutated=tuple(run.entry.name for run in self.runs if run.mutated),
            weights=self.weights,
        )

"""Who wants to know how a run goes: a live view, a test, a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """Weights that were saved after `batch` steps, and what a resumed run must know besides."""

    name: str
    batch: int
    state_path: str
    """To train on from."""
    sampler_path: str | None = None
    """To sample from; None of a model that writes nothing."""
    untrained: tuple[tuple[int, int], ...] = ()
    """Groups (batch, position) of those steps' batches that were not trained yet: later ones were in their place."""
    trained_ahead: tuple[tuple[int, int], ...] = ()
    """Groups of later batches that were."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to."""

    steps: int
    """All of them, those before a resumption too."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the last step."""
    checkpoint: CheckpointRecord | None = None
    """The last one."""


class Observer:
    """Is told what happens, in order, on the loop's own thread; it must be quick. Override what you want to know."""

    def on_start(self, kind: str, first_step: int, steps: int) -> None:
        """A run of the kind "rl", "sl" or "rm" begins (or goes on) with `first_step` of `steps`, from 0."""

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Step `step` (from 0) is over; these are its metrics, those of an evaluation after it included."""

    def on_checkpoint(self, checkpoint: CheckpointRecord) -> None:
        """Weights were saved."""

    def on_end(self, result: RunResult) -> None:
        """All steps are over; not called for a run that failed."""

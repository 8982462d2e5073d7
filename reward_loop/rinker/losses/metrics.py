"""Joining the metrics of parts of a batch: of micro-batches, of chunks, of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reward_loop.errors import TrainingError

_JOINED: Mapping[str, Callable[[Sequence[float], Sequence[int]], float]] = {
    "sum": lambda values, _: sum(values),
    "min": lambda values, _: min(values),
    "max": lambda values, _: max(values),
    "mean": lambda values, counts: sum(value * count for value, count in zip(values, counts, strict=True)) / max(1, sum(counts)),
}


def joined_metrics(parts: Sequence[tuple[Mapping[str, float], int]]) -> dict[str, float]:
    """Join parts, each with the number of its data, as the Tinker SDK does: by what stands behind the colon of a name.

    What is not in every part is left out. Raises TrainingError for a name without a known reduction.
    """
    if not parts:
        return {}
    counts = [count for _, count in parts]
    first, *rest = (metrics for metrics, _ in parts)
    names = [name for name in first if all(name in metrics for metrics in rest)]
    return {name: _reduction(name)([metrics[name] for metrics, _ in parts], counts) for name in names}


def _reduction(name: str) -> Callable[[Sequence[float], Sequence[int]], float]:
    stem, _, reduction = name.partition(":")
    if not stem or reduction not in _JOINED:
        raise TrainingError(f"the metric {name!r} must be called NAME:REDUCTION, with one of {', '.join(_JOINED)}")
    return _JOINED[reduction]

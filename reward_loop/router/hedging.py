"""From when on a request counts as slow, so that a second copy of it pays. Pure."""

from __future__ import annotations

from collections import deque

RECENT = 512
"""Latencies that are remembered."""
ENOUGH = 32
"""Latencies below which nobody knows what is slow."""


class Hedging:
    """A quantile of recent latencies; `after_s` is None while too little is known, or always where `quantile` is None."""

    def __init__(self, quantile: float | None) -> None:
        self._quantile = quantile
        self._recent: deque[float] = deque(maxlen=RECENT)
        self.after_s: float | None = None

    def note(self, latency_s: float) -> None:
        """Remember how long a request took."""
        self._recent.append(latency_s)

    def tick(self) -> None:
        """Work out `after_s` again."""
        if self._quantile is not None and len(self._recent) >= ENOUGH:
            ordered = sorted(self._recent)
            self.after_s = ordered[min(len(ordered) - 1, int(self._quantile * len(ordered)))]

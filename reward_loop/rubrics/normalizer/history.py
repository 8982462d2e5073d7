"""What was seen of one environment's rewards, and how a checkpoint holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reward_loop.rubrics.normalizer.moments import Moments
from reward_loop.rubrics.normalizer.window import Window

_MOST = 2**53
_LARGEST = 3.5e38


class History:
    """The moments of all rewards, and the last `window` of them (None: no window is kept)."""

    def __init__(self, rewards: Sequence[float], window: int | None) -> None:
        self.moments = Moments.of(rewards)
        self._window = None if window is None else Window(window)
        if self._window is not None:
            self._window.add(rewards)

    def add(self, rewards: Sequence[float]) -> None:
        """Take in rewards that arrived together."""
        self.moments = self.moments.merged(Moments.of(rewards))
        if self._window is not None:
            self._window.add(rewards)

    def merge(self, other: History) -> None:
        """Take in what another process saw."""
        self.moments = self.moments.merged(other.moments)
        if self._window is not None and other._window is not None:
            self._window.merge(other._window.values())

    @property
    def window(self) -> Window:
        """The last rewards; only methods that say `keeps_window` may ask."""
        if self._window is None:
            raise LookupError("this method keeps no window")
        return self._window

    def as_state(self) -> dict[str, Any]:
        """Return it as JSON can hold it, without loss."""
        seen = self.moments
        window = None if self._window is None else self._window.values()
        return {"n": seen.n, "mean": seen.mean, "m2": seen.m2, "min": seen.low, "max": seen.high, "window": window}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], window: int | None) -> History:
        """Undo `as_state`. Raises ValueError for what it can't have written."""
        try:
            moments = Moments(state["n"], *(float(state[key]) for key in ("mean", "m2", "min", "max")))
            values = [] if window is None else [float(value) for value in state["window"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no state of an environment ({error!r}): {state!r:.200}") from error
        if not _possible(moments, values, needs_window=window is not None):
            raise ValueError(f"no rewards have these statistics: {state!r:.200}")
        history = cls.__new__(cls)
        history.moments = moments
        history._window = None if window is None else Window(window, values)
        return history


def _possible(seen: Moments, values: Sequence[float], *, needs_window: bool) -> bool:
    """Say whether there are rewards with these statistics; comparisons with NaN are false."""
    return (
        type(seen.n) is int
        and 1 <= seen.n <= _MOST
        and -_LARGEST <= seen.low <= seen.high <= _LARGEST
        and -_LARGEST <= seen.mean <= _LARGEST
        and 0.0 <= seen.m2 <= seen.n * (2 * _LARGEST) ** 2
        and bool(values) == needs_window
        and all(seen.low <= value <= seen.high for value in values)
    )

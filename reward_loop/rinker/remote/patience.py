"""How long to try again, and when."""

from __future__ import annotations

from reward_loop.rinker.remote.settings import HttpSettings


class Patience:
    """Of one call: pauses that double, until the server has been out of reach for too long. No clock: the time is given."""

    def __init__(self, settings: HttpSettings, now: float) -> None:
        self._settings = settings
        self._end = now + settings.unreachable_s
        self._pause_s = settings.first_pause_s

    def pause_s(self, now: float, asked_s: float | None = None) -> float | None:
        """Return for how long to wait before the next attempt; None: it is time to give up. `asked_s`: the server's own wish."""
        left_s = self._end - now
        if left_s <= 0:
            return None
        pause_s = self._pause_s if asked_s is None else max(asked_s, self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._settings.longest_pause_s)
        return min(pause_s, self._settings.longest_pause_s, left_s)

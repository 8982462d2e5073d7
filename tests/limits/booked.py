"""A reservation of no limit, for tests of what reports to one."""

from __future__ import annotations


class Booked:
    """A reservation that keeps what it is told."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.waits: list[float | None] = []

    def used(self, tokens: int) -> None:
        """Keep it."""
        self.tokens.append(tokens)

    def throttled(self, retry_after_s: float | None) -> None:
        """Keep it."""
        self.waits.append(retry_after_s)

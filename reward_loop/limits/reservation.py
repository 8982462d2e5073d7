"""What a limited caller holds while it asks a service, wherever the limit is kept."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Reservation(Protocol):
    """One request that was let through; leaving its context gives its place back."""

    def used(self, tokens: int) -> None:
        """Say how many tokens the response counted, in place of the estimate that was booked."""

    def throttled(self, retry_after_s: float | None) -> None:
        """Say that the service answered 429: everyone halts for so long (None: not said), and goes on more slowly."""


class Limiter(Protocol):
    """A limit on requests, tokens and concurrency that holds for all who share it."""

    def reserve(self, tokens: int | None = None) -> AbstractAsyncContextManager[Reservation]:
        """Wait, first come first served, until a request with `tokens` (None: the estimate) may go out.

        The wait does not count towards the sample's deadline.
        """
        ...

    async def close(self) -> None:
        """Give back what is held."""

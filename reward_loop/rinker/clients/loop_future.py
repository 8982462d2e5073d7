"""The future of a call that runs on the clients' loop."""

from __future__ import annotations

from typing import TypeVar

from reward_loop.rinker.clients.background_loop import background_loop
from reward_loop.rinker.futures import ConcurrentFuture

T = TypeVar("T")


class LoopFuture(ConcurrentFuture[T]):
    """One that refuses to be waited for where nobody could ever fill it."""

    def result(self, timeout: float | None = None) -> T:
        """See `APIFuture`. Raises RuntimeError on the clients' own loop (in a done callback, say), unless there is a result."""
        if background_loop().current and not self.future().done():
            raise RuntimeError("result() on the clients' own loop would wait for itself for ever; await the future there")
        return super().result(timeout)

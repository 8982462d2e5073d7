"""The future of a client."""

from __future__ import annotations

from typing import Any, TypeVar

from reward_loop.rinker.clients.loop_future import LoopFuture

C = TypeVar("C")


class ClientFuture(LoopFuture[C]):
    """Await it, or call `result()`. It can also be used as if it were the client, which it waits for then.

    Scripts for older versions of the SDK do that, where these methods returned the client itself.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.result(), name)

    def __repr__(self) -> str:
        future = self.future()
        state = repr(future.result()) if future.done() and not (future.cancelled() or future.exception()) else str(future)
        return f"<{type(self).__name__}: {state}>"

"""What a replica of a reward model is to those who hold it, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from reward_loop.serving.spec import ServerSpec

ReplicaState = Literal["stopped", "starting", "awake", "asleep", "restarting", "failed"]
"""`restarting`: it crashed and will be back; `failed`: it was given up."""


class Replica(Protocol):
    """A server that comes back by itself after a crash, asleep or awake as was last asked for."""

    @property
    def spec(self) -> ServerSpec:
        """What it is asked to be."""
        ...

    @property
    def url(self) -> str:
        """Its address; it may change with a restart."""
        ...

    @property
    def state(self) -> ReplicaState:
        """What it does."""
        ...

    async def start(self) -> str:
        """Return its address once it has answered a probe, and sleeps if it is to start so; RewardServerError if it won't."""
        ...

    async def sleep(self) -> None:
        """Give up its memory; does nothing if it sleeps. RewardServerError if it does not.

        Nothing may be in flight. One that restarts is not waited for: it comes back asleep.
        """
        ...

    async def wake_up(self, *, wait: bool = True) -> None:
        """Be able to serve again; does nothing if it is awake. RewardServerError if it does not.

        Without `wait`, one that restarts is not waited for: it comes back awake.
        """
        ...

    async def stop(self) -> None:
        """End it, and all that it started."""
        ...


OnChange = Callable[[Replica], None]
"""Called when a replica has crashed, is back, or is given up: its state and its address say which."""

"""Where the replicas go: processes of this machine, or Ray actors on a resource pool."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reward_loop.config import RewardLoopConfig
from reward_loop.errors import ConfigError
from reward_loop.serving.replica import OnChange, Replica
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec, specs_of

Make = Callable[[OnChange], Replica]
"""Builds a replica that is not started; it reports its changes to what it is given."""


class Placement(Protocol):
    """The places of all replicas."""

    @property
    def specs(self) -> Sequence[ServerSpec]:
        """One for each replica."""
        ...

    @property
    def on_cpu(self) -> bool:
        """Whether the replicas share the cores of their machine."""
        ...

    async def open(self) -> None:
        """Have the places ready; RewardServerError if they are not to be had."""
        ...

    def makes(self, *, asleep: bool) -> list[Make]:
        """Return what builds each replica."""
        ...

    async def close(self) -> None:
        """Give the places back."""
        ...


def placement_of(config: RewardLoopConfig, resource_pool: Any) -> Placement:
    """Return the places that the configuration and the pool give; ConfigError where the replicas don't fit."""
    if resource_pool is None and config.reward_model.executor == "local":
        return LocalPlacement(specs_of(config))
    try:
        from reward_loop.serving.ray_placement import RayPlacement  # here: Ray is imported only by those who use it
    except ModuleNotFoundError as error:
        raise ConfigError(f"servers on Ray need {error.name}: pip install 'reward-loop[ray]', or set executor=local") from error
    return RayPlacement(config, resource_pool)


class LocalPlacement:
    """Processes of this machine."""

    def __init__(self, specs: Sequence[ServerSpec]) -> None:
        self.specs: Sequence[ServerSpec] = specs
        self.on_cpu = any(spec.device == "cpu" for spec in specs)

    async def open(self) -> None:
        """Do nothing: the machine is there."""

    def makes(self, *, asleep: bool) -> list[Make]:
        """Return what builds each server."""
        return [functools.partial(_server, spec, asleep) for spec in self.specs]

    async def close(self) -> None:
        """Do nothing."""


def _server(spec: ServerSpec, asleep: bool, on_change: OnChange) -> Replica:
    return VLLMServer(spec, asleep=asleep, on_change=on_change)

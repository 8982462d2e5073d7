"""Ray, as this package uses it: started once, and asked so that errors of ours come out as themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from reward_loop.errors import RequestFailedError, RewardLoopError

try:
    import ray
    from ray.exceptions import RayTaskError
    from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ModuleNotFoundError as error:
    from reward_loop.errors import ConfigError

    raise ConfigError(f"runtime=ray needs {error.name}: pip install 'reward-loop[ray]', or set runtime=local") from error

from reward_loop.rinker.runtime.settings import ActorSettings

logger = logging.getLogger(__name__)

_LATE_S = 10.0

MakeActor = Callable[[int], Any]
"""Makes the actor of a number; one that has died is made again by the same call."""


def connect(address: str | None = None) -> None:
    """Join the cluster at an address, or the one of this process; without any start one here."""
    if not ray.is_initialized():
        ray.init(address=address, include_dashboard=False, log_to_driver=True)


async def answer(reference: Any) -> Any:
    """Await a Ray call; an error of ours comes out as itself, not as Ray's wrapper; cancelling us cancels the call."""
    try:
        return await reference
    except asyncio.CancelledError:
        ray.cancel(reference)
        raise
    except RayTaskError as error:
        if isinstance(error.cause, RewardLoopError):
            raise error.cause from None
        raise


class Places:
    """The places of `count` actors of a kind: bundles of a placement group, or anywhere where they take nothing."""

    def __init__(self, count: int, settings: ActorSettings) -> None:
        self._count, self._settings = count, settings
        self._group: PlacementGroup | None = None

    async def reserve(self) -> None:
        """Take the bundles; RequestFailedError "server" where the cluster does not give them in time."""
        bundle = {name: value for name, value in (("CPU", self._settings.cpus), ("GPU", self._settings.gpus)) if value}
        if not bundle:
            return
        self._group = placement_group([bundle] * self._count, strategy=self._settings.placement)
        limit_s = self._settings.start_timeout_s
        places = f"{self._count} places of {bundle} ({self._settings.placement})"
        late = asyncio.get_running_loop().call_later(_LATE_S, _say_it_waits, places, limit_s)
        try:
            async with asyncio.timeout(limit_s):
                await self._group.ready()
        except TimeoutError:
            problem = f"the cluster did not give {places} in {limit_s:g} s; {_free()}; ask for fewer or smaller ones"
            raise RequestFailedError(problem, category="server") from None
        finally:
            late.cancel()

    def options(self, number: int) -> dict[str, Any]:
        """Return the options of the actor with this number."""
        options: dict[str, Any] = {"num_cpus": self._settings.cpus, "num_gpus": self._settings.gpus, "max_restarts": 0}
        if self._group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number)
        return options

    def release(self) -> None:
        """Give the bundles back."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None


def _say_it_waits(places: str, limit_s: float) -> None:
    logger.warning("waiting up to %g s (start_timeout_s) for %s; %s", limit_s, places, _free())


def _free() -> str:
    cluster, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    return f"the cluster has {cluster}, of which {free} is free"

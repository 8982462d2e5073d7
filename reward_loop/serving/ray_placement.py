"""Replicas on Ray: which bundles of a resource pool each takes, and the pool itself where the trainer gives none.

Invariants: a replica's bundles are on one machine, since one server process uses their GPUs; what this module has reserved is
given back by `close`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from reward_loop.config import RewardLoopConfig
from reward_loop.errors import ConfigError, RewardServerError
from reward_loop.serving.devices import built_for_cpu
from reward_loop.serving.placement import Make
from reward_loop.serving.ray_replica import Place, RayReplica, free_resources
from reward_loop.serving.replica import OnChange, Replica
from reward_loop.serving.spec import ServerSpec, specs_of

logger = logging.getLogger(__name__)

_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle of a placement group."""

    group: PlacementGroup
    index: int
    gpus: float

    def strategy(self) -> PlacementGroupSchedulingStrategy:
        """Return what puts an actor there."""
        return PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=self.index)


def bundles_of(pool: Any) -> list[Bundle]:
    """Return the bundles of verl's RayResourcePool, of a placement group, or of a sequence of these; ConfigError for others."""
    if isinstance(pool, PlacementGroup):
        return [Bundle(pool, index, spec.get("GPU", 0)) for index, spec in enumerate(pool.bundle_specs)]
    if isinstance(pool, list | tuple):
        return [bundle for part in pool for bundle in bundles_of(part)]
    groups = pool.get_placement_groups() if callable(getattr(pool, "get_placement_groups", None)) else getattr(pool, "pgs", None)
    if not groups:
        raise ConfigError(
            f"the resource pool {pool!r:.200} is none: pass verl's RayResourcePool, a Ray placement group, or a list of them"
        )
    return bundles_of(list(groups))


class RayPlacement:
    """The places of the replicas that `config` asks for, on `pool` or on a placement group of their own."""

    def __init__(self, config: RewardLoopConfig, pool: Any) -> None:
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=True)
        self._bundles = bundles_of(pool) if pool is not None else []
        self._share = _share(pool, config.reward_model.enable_resource_pool)
        self._own: PlacementGroup | None = None
        self._holders: list[Any] = []
        self._places: list[Place] = []
        self.specs: Sequence[ServerSpec] = specs_of(config, **self._room(config))
        self.on_cpu = self.specs[0].device == "cpu"
        self._check_room()

    async def open(self) -> None:
        """Reserve the bundles, and learn which GPUs they are."""
        limit_s = self.specs[0].start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                if not self._bundles:
                    await self._reserve()
                rest = iter(self._bundles)
                for spec in self.specs:
                    taken = [] if self.on_cpu else list(islice(rest, spec.world_size))
                    self._places.append(await self._place(spec, taken or [self._bundles[len(self._places) % len(self._bundles)]]))
        except TimeoutError:
            raise RewardServerError(
                f"the cluster did not give {len(self.specs)} servers their places in {limit_s:.0f} s; {free_resources()}; "
                "ask for fewer replicas or GPUs"
            ) from None

    def makes(self, *, asleep: bool) -> list[Make]:
        """Return what builds each replica."""
        placed = zip(self.specs, self._places, strict=True)
        return [functools.partial(_replica, spec, place, asleep) for spec, place in placed]

    async def close(self) -> None:
        """Give back what was reserved here."""
        for holder in self._holders:
            ray.kill(holder)
        if self._own is not None:
            remove_placement_group(self._own)

    def _room(self, config: RewardLoopConfig) -> dict[str, int]:
        """Return the GPUs and bundles of the pool; without one, the cluster's GPUs, of which this machine may have none."""
        if self._bundles:
            return {"pool_gpus": sum(bundle.gpus > 0 for bundle in self._bundles), "pool_cpus": len(self._bundles)}
        settings = config.reward_model
        cluster = int(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]
        on_gpus = cluster and settings.server.device != "cpu" and not built_for_cpu()
        return {"pool_gpus": settings.n_gpus_per_node * settings.nnodes or cluster} if on_gpus else {}

    def _check_room(self) -> None:
        wanted = sum(spec.world_size for spec in self.specs)
        gpus = sum(bundle.gpus > 0 for bundle in self._bundles)
        if self._bundles and not self.on_cpu and wanted > gpus:
            raise ConfigError(
                f"the reward models take {wanted} GPUs and the resource pool has {gpus}; give it more, or ask for fewer replicas"
            )

    async def _reserve(self) -> None:
        """Take a placement group: a bundle for each GPU, or for each server where there is none."""
        bundles = [
            {"CPU": 1.0} if self.on_cpu else {"CPU": 1.0, "GPU": 1.0}
            for spec in self.specs
            for _ in range(1 if self.on_cpu else spec.world_size)
        ]
        self._own = placement_group(bundles, strategy="PACK")
        await self._own.ready()
        self._bundles = bundles_of(self._own)

    async def _place(self, spec: ServerSpec, bundles: list[Bundle]) -> Place:
        """Return where a server goes; its share of each GPU is held from now on."""
        if self.on_cpu:
            return Place(bundles[0].strategy(), num_cpus=1.0 if self._own is not None else 0.0)
        # A server runs in one actor, but its GPUs may be in several bundles: an actor in each holds the GPU and names it.
        holders: list[Any] = [
            ray.remote(_Holder).options(num_cpus=0, num_gpus=self._share, scheduling_strategy=bundle.strategy()).remote()
            for bundle in bundles
        ]
        self._holders += holders
        held: list[tuple[str, tuple[str, ...]]] = [await holder.held.remote() for holder in holders]
        if len({node for node, _ in held}) > 1:
            raise ConfigError(
                f"replica {spec.replica} of {spec.name} spans machines: its {len(bundles)} bundles must be on one; "
                "use the strategy PACK or STRICT_PACK, or lower the parallel sizes"
            )
        return Place(bundles[0].strategy(), devices=tuple(gpu for _, gpus in held for gpu in gpus))


class _Holder:
    """An actor that holds a share of a bundle's GPU."""

    def held(self) -> tuple[str, tuple[str, ...]]:
        """Return its node and its GPUs."""
        return ray.get_runtime_context().get_node_id(), tuple(map(str, ray.get_gpu_ids()))


def _share(pool: Any, standalone: bool) -> float:
    """Return the part of each GPU that is taken in Ray's books: all of one's own, else what the trainer leaves."""
    sharers = getattr(pool, "max_colocate_count", None)
    if isinstance(sharers, int) and sharers > 1:
        return 1.0 / sharers
    return 1.0 if standalone else _LEAST_SHARE


def _replica(spec: ServerSpec, place: Place, asleep: bool, on_change: OnChange) -> Replica:
    return RayReplica(dataclasses.replace(spec, devices=place.devices), place, asleep=asleep, on_change=on_change)

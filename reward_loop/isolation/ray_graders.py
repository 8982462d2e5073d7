"""One pool of grader processes per Ray node, shared by every worker there.

Invariant: a node has one pool per reward loop, owned by one actor; a pool that died with its owner is started
again by the next worker that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from reward_loop.errors import WorkerDied
from reward_loop.functions.custom import load_module, user_modules
from reward_loop.isolation.processes import GraderProcesses

_ATTEMPTS = 3


class GraderPool:
    """The actor: holds a node's processes."""

    def __init__(self, modules: list[str], pickled: bytes, processes: int, timeout_s: float | None) -> None:
        for path in modules:
            load_module(path)
        function, constants = cloudpickle.loads(pickled)
        self._graders = GraderProcesses(function, constants, processes, timeout_s)

    async def call(self, inputs: dict[str, Any]) -> Any:
        """Return what the function returns for these inputs."""
        return await self._graders.call(inputs)


class NodeGraders:
    """A worker's handle of its node's pool."""

    def __init__(
        self,
        function: Callable[..., Any],
        constants: Mapping[str, Any],
        processes: int,
        timeout_s: float | None,
        job: str,
    ) -> None:
        self._arguments = (user_modules(), cloudpickle.dumps((function, dict(constants))), processes, timeout_s)
        self._job = job
        self._node = ray.get_runtime_context().get_node_id()
        self._pool = self._join()

    async def call(self, inputs: dict[str, Any]) -> Any:
        """Grade in the node's pool; raises what `GraderProcesses.call` raises."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._pool.call.remote(inputs)
            except RayActorError:
                self._pool = self._join()
            except RayTaskError as error:
                raise error.cause from None
        raise WorkerDied(f"the node's grader pool died {_ATTEMPTS} times while it scored this sample")

    def close(self) -> None:
        """Leave the pool; it ends with the job, for other workers may use it."""

    def _join(self) -> Any:
        # No CPUs are reserved: the pool must start on a node whose CPUs the trainer holds.
        return (
            ray.remote(GraderPool)
            .options(
                name=f"reward_graders_{self._job}_{self._node}",
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=100_000,
                scheduling_strategy=NodeAffinitySchedulingStrategy(self._node, soft=False),
            )
            .remote(*self._arguments)
        )

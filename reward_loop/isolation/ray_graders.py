"""One pool of grader processes per Ray node, shared by every worker there.

Invariant: a node has one pool per reward loop, owned by one actor; a pool that died with its owner is started
again by the next worker that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cloudpickle
import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from reward_loop.deadline import waiting
from reward_loop.errors import WorkerDied
from reward_loop.functions.user_code import UserCode
from reward_loop.isolation.pool import GraderPool

_ATTEMPTS = 3


class NodePool:
    """The actor: holds a node's processes."""

    def __init__(self, code: UserCode, settings: bytes) -> None:
        code.load()
        self._pool = GraderPool(**cloudpickle.loads(settings))

    async def start(self) -> None:
        """Start the processes."""
        await self._pool.start()

    async def call(self, inputs: dict[str, Any]) -> Any:
        """Return what the function returns for these inputs."""
        return await self._pool.call(inputs)


class NodeGraders:
    """A worker's handle of its node's pool; `settings` are the arguments of `GraderPool`."""

    def __init__(self, job: str, settings: Mapping[str, Any]) -> None:
        pickled = cloudpickle.dumps(dict(settings))
        self._arguments = (UserCode.of_this_process(), pickled)
        self._job = job
        self._node = ray.get_runtime_context().get_node_id()
        self._pool = self._join()

    async def start(self) -> None:
        """Start the node's processes, if nobody has."""
        await self._ask("start")

    async def call(self, inputs: Mapping[str, Any]) -> Any:
        """Grade in the node's pool; raises what `GraderPool.call` raises."""
        with waiting():
            return await self._ask("call", dict(inputs))

    def close(self) -> None:
        """Leave the pool; it ends with the job, for other workers may use it."""

    async def _ask(self, method: str, *arguments: Any) -> Any:
        for _ in range(_ATTEMPTS):
            try:
                return await getattr(self._pool, method).remote(*arguments)
            except RayActorError:
                self._pool = self._join()
            except RayTaskError as error:
                raise error.cause from None
        raise WorkerDied(f"the node's grader pool died {_ATTEMPTS} times while it scored this sample")

    def _join(self) -> Any:
        # No CPUs are reserved: the pool must start on a node whose CPUs the trainer holds.
        return (
            ray.remote(NodePool)
            .options(
                name=f"reward_graders_{self._job}_{self._node}",
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=100_000,
                scheduling_strategy=NodeAffinitySchedulingStrategy(self._node, soft=False),
            )
            .remote(*self._arguments)
        )

"""Groups being played in the background, while others are trained on.

Invariants: what is played at a time is bounded, by the plan (K steps ahead) and by admission; a group that comes out is whole;
the first error that ends the run reaches whoever waits for a group; nothing goes on behind the context manager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from reward_loop.rinker.rl.policy import Policy
from reward_loop.rinker.rl.rollouts import GroupPlayer, PlayedGroup, first_of
from reward_loop.rinker.rl.work_plan import GroupId, GroupTask, WorkPlan

logger = logging.getLogger(__name__)


class RolloutPipeline:
    """Plays the groups of a plan with the newest policy. `running` opens it."""

    def __init__(self, plan: WorkPlan, player: GroupPlayer, policy: Policy, *, max_steps_off_policy: int = 0) -> None:
        self._plan, self._player, self._policy = plan, player, policy
        self._max_age = max_steps_off_policy
        self._playing: dict[GroupId, Policy] = {}
        self._done: asyncio.Queue[PlayedGroup] = asyncio.Queue()
        self._more = asyncio.Event()
        self._more.set()
        self.discarded = 0
        """Groups that were too old when they were to be trained on, since `discarded` was last set to 0."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[RolloutPipeline]:
        """Play groups while the caller is inside."""
        try:
            async with asyncio.TaskGroup() as tasks:
                feeder = tasks.create_task(self._feed())
                try:
                    yield self
                finally:
                    feeder.cancel()
        except BaseExceptionGroup as failed:
            first = first_of(failed)
            raise first from first.__cause__

    def publish(self, policy: Policy) -> None:
        """Play what begins from now on with another policy."""
        self._policy = policy
        self._more.set()

    @property
    def steps_in_use(self) -> frozenset[int]:
        """The steps of the policies that are sampled from: the newest, and those that groups in flight began with."""
        return frozenset(policy.step for policy in (self._policy, *self._playing.values()))

    async def next_group(self) -> PlayedGroup:
        """Return a group that may be trained on now; one that has become too old is played again instead."""
        while True:
            played = await self._done.get()
            age = self._policy.step - played.policy_step
            if age <= self._max_age:
                return played
            self.discarded += 1
            logger.warning(
                "group=%s is discarded and sampled again: its policy is %d steps old, and max_steps_off_policy=%d",
                played.task.id,
                age,
                self._max_age,
            )
            self._plan.requeue(played.task)
            self._more.set()

    async def _feed(self) -> None:
        """Begin every group that the plan allows; wait for the next step when there is none."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._more.wait()
                self._more.clear()
                while (task := self._plan.next(self._policy.step)) is not None:
                    tasks.create_task(self._play(task))

    async def _play(self, task: GroupTask) -> None:
        def newest() -> Policy:
            # An attempt before this one, and so its use of an older policy, has ended.
            self._playing[task.id] = self._policy
            return self._policy

        try:
            self._done.put_nowait(await self._player.play(task, newest))
        finally:
            self._playing.pop(task.id, None)

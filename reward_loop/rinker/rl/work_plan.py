"""Which group is played next, and which have been trained on. Pure: it owns no tasks and no clock.

Invariants: a group is handed out once, or again after `requeue`; it is trained once; groups of batch b are handed out once the
policy has made b - K steps, so that with K = 0 all data is the current policy's; what a checkpoint notes is enough to hand out
exactly the groups that were not trained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from reward_loop.errors import DataError, TrainingError
from reward_loop.rinker.rl.types import EnvGroupBuilder, RLDataset

GroupId: TypeAlias = tuple[int, int]
"""Batch, counted on over the epochs, and the place in it."""


@dataclass(frozen=True, slots=True)
class GroupTask:
    """A group to be played."""

    id: GroupId
    builder: EnvGroupBuilder


class WorkPlan:
    """The groups of `steps` batches of a dataset, with `max_steps_off_policy` = K.

    After a resumption those of batches before `first_step` are trained but for `untrained`, and of later ones `trained_ahead`.
    """

    def __init__(
        self,
        dataset: RLDataset,
        steps: int,
        *,
        max_steps_off_policy: int = 0,
        first_step: int = 0,
        untrained: Sequence[GroupId] = (),
        trained_ahead: Sequence[GroupId] = (),
    ) -> None:
        if not len(dataset):
            raise DataError("the dataset has no batches; nothing can be trained on")
        self._dataset, self._steps, self._ahead = dataset, steps, max_steps_off_policy
        self._sizes: dict[int, int] = {}
        self._open: set[GroupId] = set(untrained)
        self._skipped = frozenset(trained_ahead)
        self._queue = deque(self._again(group) for group in untrained)
        self._next_batch = first_step

    def size(self, step: int) -> int:
        """How many groups step `step` trains."""
        while self._next_batch <= step:
            self._load()
        return self._sizes[step]

    def next(self, step: int) -> GroupTask | None:
        """Return a group to be played by the policy that has made `step` steps; None: there is none until it makes another."""
        while self._next_batch <= min(step + self._ahead, self._steps - 1):
            self._load()
        return self._queue.popleft() if self._queue else None

    def requeue(self, task: GroupTask) -> None:
        """Hand a group out again, before all others."""
        self._queue.appendleft(task)

    def trained(self, group: GroupId) -> None:
        """Note that a group was trained on (or dropped); TrainingError for one that was before."""
        if group not in self._open:
            raise TrainingError(f"group {group} was trained on already, or never handed out; no sample may be trained on twice")
        self._open.remove(group)

    def untrained(self, step: int) -> tuple[GroupId, ...]:
        """Return the groups of the first `step` batches that were not trained."""
        return tuple(sorted(group for group in self._open if group[0] < step))

    def trained_ahead(self, step: int) -> tuple[GroupId, ...]:
        """Return the groups of later batches that were trained."""
        later = ((batch, place) for batch, size in sorted(self._sizes.items()) if batch >= step for place in range(size))
        return tuple(group for group in later if group not in self._open)

    def _load(self) -> None:
        batch = self._next_batch
        builders = self._batch(batch)
        if not builders:
            raise DataError(f"batch {batch % len(self._dataset)} of the dataset has no groups")
        self._next_batch += 1
        self._sizes[batch] = len(builders)
        tasks = [GroupTask((batch, place), builder) for place, builder in enumerate(builders)]
        new = [task for task in tasks if task.id not in self._skipped]
        self._open |= {task.id for task in new}
        self._queue.extend(new)

    def _again(self, group: GroupId) -> GroupTask:
        batch, place = group
        builders = self._batch(batch)
        if place >= len(builders):
            raise DataError(
                f"batch {batch} has {len(builders)} groups, and a checkpoint knows of group {place}: it is another dataset"
            )
        return GroupTask(group, builders[place])

    def _batch(self, batch: int) -> Sequence[EnvGroupBuilder]:
        return self._dataset.get_batch(batch % len(self._dataset))

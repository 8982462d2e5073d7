"""The plan: which group is played next, and which were trained on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.errors import DataError, TrainingError
from reward_loop.rinker.rl.types import EnvGroupBuilder, RLDataset
from reward_loop.rinker.rl.work_plan import GroupId, WorkPlan
from tests.rinker.rl.copy_task import CopyDataset, CopyGroup


class Sizes(RLDataset):
    """Batches of these sizes."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return [CopyGroup([0], 1) for _ in range(self.sizes[index])]

    def __len__(self) -> int:
        return len(self.sizes)


def handed_out(plan: WorkPlan, step: int) -> list[GroupId]:
    return [task.id for task in iter(lambda: plan.next(step), None)]


def test_without_running_ahead_a_step_hands_out_its_own_batch() -> None:
    plan = WorkPlan(Sizes(2, 1), 2)
    assert handed_out(plan, 0) == [(0, 0), (0, 1)]
    assert handed_out(plan, 0) == []
    assert handed_out(plan, 1) == [(1, 0)]
    assert (plan.size(0), plan.size(1)) == (2, 1)


def test_running_ahead_hands_out_k_batches_more_and_none_behind_the_end() -> None:
    plan = WorkPlan(Sizes(1, 1, 1), 3, max_steps_off_policy=1)
    assert handed_out(plan, 0) == [(0, 0), (1, 0)]
    assert handed_out(plan, 2) == [(2, 0)]


def test_batches_are_counted_on_over_the_epochs() -> None:
    plan = WorkPlan(Sizes(1, 1), 4, max_steps_off_policy=3)
    assert handed_out(plan, 0) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_what_is_queued_again_comes_first() -> None:
    plan = WorkPlan(Sizes(3), 1)
    first = plan.next(0)
    assert first is not None
    plan.requeue(first)
    assert handed_out(plan, 0) == [(0, 0), (0, 1), (0, 2)]


def test_nothing_is_trained_twice_or_without_being_handed_out() -> None:
    plan = WorkPlan(Sizes(1), 1)
    with pytest.raises(TrainingError, match="never handed out"):
        plan.trained((0, 0))
    plan.next(0)
    plan.trained((0, 0))
    with pytest.raises(TrainingError, match=r"group \(0, 0\) was trained on already"):
        plan.trained((0, 0))


@settings(max_examples=50)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 5), st.randoms())
def test_a_resumed_plan_hands_out_exactly_what_was_not_trained(
    sizes: list[int], ahead: int, stop: int, draw: random.Random
) -> None:
    steps = len(sizes)
    plan = WorkPlan(Sizes(*sizes), steps, max_steps_off_policy=ahead)
    waiting: list[GroupId] = []
    trained: list[GroupId] = []
    done = min(stop, steps)
    for step in range(done):
        waiting += handed_out(plan, step)
        draw.shuffle(waiting)  # groups end in any order
        for group in (waiting.pop() for _ in range(plan.size(step))):
            plan.trained(group)
            trained.append(group)
    resumed = WorkPlan(
        Sizes(*sizes),
        steps,
        max_steps_off_policy=ahead,
        first_step=done,
        untrained=plan.untrained(done),
        trained_ahead=plan.trained_ahead(done),
    )
    rest = [group for step in range(done, steps) for group in handed_out(resumed, step)]
    assert sorted(trained + rest) == [(batch, place) for batch, size in enumerate(sizes) for place in range(size)]
    for group in rest:
        resumed.trained(group)
    assert resumed.untrained(steps) == resumed.trained_ahead(steps) == ()


def test_a_dataset_that_can_not_be_trained_on_is_refused() -> None:
    with pytest.raises(DataError, match="no batches"):
        WorkPlan(Sizes(), 1)
    with pytest.raises(DataError, match="batch 1 of the dataset has no groups"):
        handed_out(WorkPlan(Sizes(1, 0), 2), 1)
    with pytest.raises(DataError, match=r"batch 0 has 1 groups, .* group 3: it is another dataset"):
        WorkPlan(Sizes(1), 1, first_step=1, untrained=[(0, 3)])


def test_the_copy_task_gives_the_same_groups_whenever_it_is_asked() -> None:
    data = CopyDataset(3, 2, 1)
    digits = [[group.digits for group in data.get_batch(1) if isinstance(group, CopyGroup)] for _ in range(2)]
    assert digits[0] == digits[1]

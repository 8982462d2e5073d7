"""The mixin of environments, with the names of OpenEnv's."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.rubrics import Action, Observation, RubricComposer, RubricEnvironment
from tests.rubrics.scoring_rubrics import Awaited, Fixed


class Echo(RubricEnvironment):
    """Answers with what was said."""

    def reset(self) -> Observation:
        self._reset_rubric()
        return Observation()

    def step(self, action: Action) -> Observation:
        observation = Observation(message=action.message)
        observation.reward = self._apply_rubric(action, observation)
        return observation

    async def reset_async(self) -> Observation:
        await self._reset_rubric_async()
        return Observation()

    async def step_async(self, action: Action) -> Observation:
        observation = Observation(message=action.message)
        observation.reward = await self._apply_rubric_async(action, observation)
        return observation


class Counting(Fixed):
    """Counts the calls of an episode."""

    def reset(self) -> None:
        self.calls = 0


class CountingLater(Awaited):
    """Is reset by awaiting."""

    async def reset_async(self) -> None:
        self.calls = 0


async def test_without_a_rubric_there_is_no_reward_which_is_not_0() -> None:
    environment = Echo()
    environment.reset()
    await environment.reset_async()
    assert environment.rubric is None
    assert environment.step(Action("x")).reward is None
    assert (await environment.step_async(Action("x"))).reward is None


async def test_a_rubric_gives_the_reward() -> None:
    environment = Echo(rubric=Fixed(0.75))
    assert environment.step(Action("x")).reward == 0.75
    reward = (await environment.step_async(Action("x"))).reward
    assert reward == 0.75
    assert type(reward) is float


async def test_an_async_rubric_gives_the_reward_of_an_async_step() -> None:
    assert (await Echo(Awaited(0.75)).step_async(Action("x"))).reward == 0.75


def test_an_async_rubric_cannot_give_the_reward_of_a_synchronous_step() -> None:
    with pytest.raises(RuntimeError, match="_apply_rubric_async"):
        Echo(Awaited()).step(Action("x"))


async def test_reset_resets_the_rubric() -> None:
    rubric = Counting()
    environment = Echo(rubric)
    for reset in (environment.reset, environment.reset_async):
        environment.step(Action("x"))
        ended: Any = reset()
        if reset == environment.reset_async:
            await ended
        assert rubric.calls == 0


async def test_a_rubric_may_be_reset_by_awaiting() -> None:
    rubric = CountingLater()
    environment = Echo(rubric)
    await environment.step_async(Action("x"))
    await environment.reset_async()
    assert rubric.calls == 0


async def test_a_composer_writes_its_components_into_the_metadata() -> None:
    environment = Echo(RubricComposer({"a": Fixed(0.5), "b": Fixed(0.25)}, {"b": 2}))
    for observation in (environment.step(Action("x")), await environment.step_async(Action("x"))):
        assert observation.reward == 1.0
        assert observation.metadata["reward_components"] == {"a": 0.5, "b": 0.25}


async def test_the_scores_below_can_be_read_after_a_step() -> None:
    class Outer(Fixed):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Awaited(0.5), Awaited(0.8)

        async def forward(self, action: Any, observation: Any) -> Any:
            return (await self.first(action, observation) + await self.second(action, observation)) / 2

    environment = Echo(Outer())
    await environment.step_async(Action("x"))
    assert {name: child.last_score for name, child in environment.rubric.named_children()} == {"first": 0.5, "second": 0.8}


def test_it_is_a_mixin() -> None:
    class Base:
        def __init__(self, seed: int = 0) -> None:
            self.seed = seed

    class Both(RubricEnvironment, Base):
        pass

    environment = Both(rubric=Fixed(), seed=3)
    assert environment.seed == 3
    assert environment.rubric(Action("x"), Observation()) == 1.0

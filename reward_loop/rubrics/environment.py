"""What an environment needs to give rewards by a rubric, under the names of OpenEnv's `Environment`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from reward_loop.rubrics.evaluation import discard, must_await
from reward_loop.rubrics.rubric import is_rubric


class RubricEnvironment:
    """Mixin of environments: call `_reset_rubric` in `reset` and `observation.reward = self._apply_rubric(…)` in `step`.

    `rubric` is a rubric or a `RubricComposer`, which writes `reward_components` into the observation's metadata. Without one the
    reward is None: no reward, which is not a reward of 0.
    """

    rubric: Any = None

    def __init__(self, rubric: Any = None, **more: Any) -> None:
        super().__init__(**more)
        self.rubric = rubric

    def _apply_rubric(self, action: Any, observation: Any) -> float | None:
        """Return the reward of a step; RuntimeError where the rubric must be awaited."""
        if self.rubric is None:
            return None
        if not is_rubric(self.rubric):
            return _reported(observation, *self.rubric.compute(action, observation))
        score = self.rubric(action, observation)
        if must_await(score):
            discard([score])
            raise RuntimeError(f"the rubric {self.rubric!r} must be awaited: use _apply_rubric_async")
        return float(score)

    async def _apply_rubric_async(self, action: Any, observation: Any) -> float | None:
        """Return the reward of a step."""
        if self.rubric is None:
            return None
        if not is_rubric(self.rubric):
            return _reported(observation, *(await self.rubric.acompute(action, observation)))
        score = self.rubric(action, observation)
        return float(await score if must_await(score) else score)

    def _reset_rubric(self) -> None:
        """Begin a new episode in the rubric."""
        if self.rubric is not None:
            self.rubric.reset()

    async def _reset_rubric_async(self) -> None:
        """Begin a new episode in the rubric, by its `reset_async` where it has one."""
        reset = getattr(self.rubric, "reset_async", None)
        if reset is None:
            self._reset_rubric()
        elif must_await(ended := reset()):
            await ended


def _reported(observation: Any, reward: float | None, components: dict[str, float]) -> float | None:
    metadata = getattr(observation, "metadata", None)
    if isinstance(metadata, MutableMapping):
        metadata["reward_components"] = components
    return reward

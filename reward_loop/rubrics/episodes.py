"""Which rubrics live with an episode: those that must see all its steps, and those of which each episode needs its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reward_loop.rubrics.foreign_rubric import ForeignRubric
from reward_loop.rubrics.function_rubric import FunctionRubric
from reward_loop.rubrics.rubric import Rubric


def follows_episode(rubric: Rubric) -> bool:
    """Return whether a rubric, or one below it, collects steps: a trajectory rubric, or what says that it is `stateful`."""
    return any(hasattr(part, "score_trajectory") or getattr(part, "stateful", False) for part in _parts(rubric))


def keeps_state(rubric: Rubric) -> bool:
    """Return whether episodes can't share a rubric: it, or one below it, can be reset, or is another package's."""
    return follows_episode(rubric) or any(_resets(part) for part in _parts(rubric))


def _parts(rubric: Rubric) -> Iterator[Any]:
    for part in (rubric, *rubric.rubrics()):
        yield part
        if isinstance(part, FunctionRubric):
            yield part.function
        elif isinstance(part, ForeignRubric):
            yield part.inner


def _resets(part: Any) -> bool:
    if isinstance(part, FunctionRubric):
        return False  # the function that it calls is a part too
    if isinstance(part, Rubric):
        return type(part).reset is not Rubric.reset
    return callable(getattr(part, "reset", None))

"""Whose reward an episode gets: the environment's own, or the reward loop's.

Invariant: what could not be scored has the reward None, never 0, unless the configuration names a number for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reward_loop.rinker.rl.types import Env, Metrics, Trajectory


@dataclass(frozen=True, slots=True)
class EpisodeReward:
    """The reward of an episode beyond those of its steps, and what else is known of it."""

    value: float | None = 0.0
    metrics: Metrics = field(default_factory=dict[str, float])
    replaces: bool = False
    """Whether it stands for the rewards of the steps and the group too."""
    failed: bool = False
    """Whether it is one that could not be computed."""


class EpisodeScorer(Protocol):
    """Scores episodes as they end. Raises what makes a run end; a failure that the configuration allows is a result."""

    @property
    def whole_groups(self) -> bool:
        """Whether only all episodes of a group together can be scored."""
        ...

    async def score(self, group: str, episodes: Sequence[tuple[Env, Trajectory]]) -> list[EpisodeReward]:
        """Return the reward of each episode of a group, or of some of them."""
        ...


class NoScorer:
    """Leaves all to the environment."""

    whole_groups = False

    async def score(self, group: str, episodes: Sequence[tuple[Env, Trajectory]]) -> list[EpisodeReward]:
        """Add nothing."""
        return [EpisodeReward() for _ in episodes]


def numbers(extra: Mapping[str, object]) -> dict[str, float]:
    """Return what of an extra info can be averaged."""
    return {key: float(value) for key, value in extra.items() if isinstance(value, int | float)}

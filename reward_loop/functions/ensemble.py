"""One reward out of several models' scores of the same response.

Invariant: a reward is made of every model's score; where one of them fails, the sample fails, never the mean of the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, sqrt
from typing import Any, Literal, assert_never

from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.functions.discriminative import DiscriminativeReward

_TAKEN = {"score", "std", "tokens"}
_VERSION = "_version"


@dataclass(frozen=True, slots=True)
class Reduction:
    """How scores by model become one: mean, min, or mean less `penalty` standard deviations (arXiv:2310.02743).

    `weights` are those of the mean and the deviation, 1 for a model that is not named; `min` takes every model alike.
    """

    reduce: Literal["mean", "min", "uncertainty"] = "mean"
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    penalty: float = 1.0

    def check(self, models: Sequence[str]) -> None:
        """Raise ConfigError for weights of other models, negative ones, and for weights that are all 0."""
        if unknown := sorted(self.weights.keys() - set(models)):
            raise ConfigError(f"reward_model.ensemble.weights names {unknown}, but the models are {sorted(models)}")
        weights = {name: self.weights.get(name, 1.0) for name in models}
        if not (min(weights.values()) >= 0.0 and 0.0 < fsum(weights.values()) < float("inf")):
            raise ConfigError(f"reward_model.ensemble.weights={weights}: none may be negative, nor all 0")

    def __call__(self, scores: Mapping[str, float]) -> tuple[float, float]:
        """Return the reward and the standard deviation of the scores, which tells how much the models disagree."""
        weights = [self.weights.get(name, 1.0) for name in scores]
        mean = _weighted(list(scores.values()), weights)
        std = sqrt(_weighted([(score - mean) ** 2 for score in scores.values()], weights))
        match self.reduce:
            case "mean":
                return mean, std
            case "min":
                return min(scores.values()), std
            case "uncertainty":
                return mean - self.penalty * std, std
            case _:
                assert_never(self.reduce)


class EnsembleReward:
    """A reward function: several models are asked side by side; the first that fails ends the others and the sample."""

    def __init__(self, members: Sequence[DiscriminativeReward], reduction: Reduction | None = None) -> None:
        self._members = members
        self._reduction = reduction or Reduction()
        names = [member.name for member in members]
        self._reduction.check(names)
        versions = {f"{name}{_VERSION}" for name in names}
        if taken := sorted((_TAKEN | versions) & set(names)):
            raise ConfigError(f"reward_model.models: {taken} can't be names, rm_<name> means something else; rename the models")

    async def __call__(self, *, solution_str: str, raw_prompt: Any) -> dict[str, Any]:
        """Return the score with `rm_score`, each model's as `rm_<name>`, their deviation `rm_std`, and `rm_tokens` in all.

        The version of each model's weights is `rm_<name>_version`, where its server says one. Raises what the first model that
        failed raised.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_asked(member, solution_str, raw_prompt)) for member in self._members]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        results = {member.name: task.result() for member, task in zip(self._members, tasks, strict=True)}
        score, std = self._reduction({name: result["score"] for name, result in results.items()})
        each = {f"rm_{name}": result["score"] for name, result in results.items()}
        each |= {f"rm_{name}{_VERSION}": result["rm_version"] for name, result in results.items() if "rm_version" in result}
        tokens = sum(result["rm_tokens"] for result in results.values())
        return {"score": score, **each, "rm_score": score, "rm_std": std, "rm_tokens": tokens}


async def _asked(member: DiscriminativeReward, solution_str: str, raw_prompt: object) -> dict[str, Any]:
    try:
        return await member(solution_str=solution_str, raw_prompt=raw_prompt)
    except RewardLoopError as error:
        error.message = f"{member.name}: {error.message}"
        raise


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    return fsum(value * weight for value, weight in zip(values, weights, strict=True)) / fsum(weights)

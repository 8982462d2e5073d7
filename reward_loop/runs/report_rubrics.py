"""What a rubric pipeline says of the rows that it scored: components, weights, what judges cost, which rubrics failed.

It is in the extra info that the reward manager `rubric` writes; without it nothing here holds anything, nor is it shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from reward_loop.runs.report_values import OTHERS, Values, finite_number, numbers, slot
from reward_loop.runs.report_weights import WeightHistory

_JUDGE_COLUMNS = ("judge_calls", "judge_prompt_tokens", "judge_completion_tokens", "judge_cost")
RUBRIC_COLUMNS = frozenset({"reward_components", "reward_weights", "config_version", "rubric_failures", *_JUDGE_COLUMNS})


@dataclass(slots=True)
class RubricScores:
    """One rubric's normalised scores, and what they add to the reward: weight times score."""

    scores: Values = field(default_factory=Values)
    weighted: Values = field(default_factory=Values)


@dataclass(slots=True)
class JudgeCost:
    """What the judges of some rows cost, in the unit of the services' prices."""

    rows: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def add(self, other: JudgeCost) -> None:
        """Add another's."""
        self.rows += other.rows
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.cost += other.cost


@dataclass(slots=True)
class RubricFailure:
    """Rows at which a rubric failed, and the first of them."""

    first_row: int
    first_message: str
    rows: int = 0


class RubricStats:
    """What the page shows of a rubric pipeline, gathered row by row."""

    def __init__(self) -> None:
        self.rubrics: dict[str, RubricScores] = {}
        self.weights = WeightHistory("configuration version")
        self.judges: dict[str, JudgeCost] = {}
        self.failures: dict[str, RubricFailure] = {}

    def add(self, number: int, source: str, info: Mapping[str, Any], reward: float | None) -> None:
        """Take in the extra info of row `number`; what has not the form that the manager gives it is left out."""
        weights = numbers(info.get("reward_weights"))
        if reward is not None:
            for name, score in numbers(info.get("reward_components")).items():
                rubric = slot(self.rubrics, name, OTHERS, RubricScores)
                rubric.scores.add(score, reward)
                rubric.weighted.add(score * weights.get(name, 1.0), reward)
        version = finite_number(info.get("config_version"))
        self.weights.add(0 if version is None else int(version), weights)
        if any(info.get(column) is not None for column in _JUDGE_COLUMNS):
            slot(self.judges, source, OTHERS, JudgeCost).add(_cost(info))
        for name, message in _mapping(info.get("rubric_failures")).items():
            self._add_failure(number, name, message if isinstance(message, str) else json.dumps(message, default=str))

    @property
    def judged(self) -> JudgeCost | None:
        """What all rows cost; None where no judge was called."""
        total = JudgeCost()
        for cost in self.judges.values():
            total.add(cost)
        return total if total.calls else None

    def _add_failure(self, number: int, name: str, message: str) -> None:
        slot(self.failures, name, OTHERS, lambda: RubricFailure(number, message)).rows += 1


def _cost(info: Mapping[str, Any]) -> JudgeCost:
    calls, prompt_tokens, completion_tokens, cost = (finite_number(info.get(column)) or 0.0 for column in _JUDGE_COLUMNS)
    return JudgeCost(1, int(calls), int(prompt_tokens), int(completion_tokens), cost)


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

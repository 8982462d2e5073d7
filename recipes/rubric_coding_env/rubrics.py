"""The rubrics of the coding environment: tests that pass, style, and how many attempts it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reward_loop.rubrics import Action, Observation, Rubric
from reward_loop.rubrics.judges.services import JudgeServices


@dataclass(frozen=True, slots=True)
class TestPassConfig:
    """Settings of `TestPassRubric`."""

    __test__ = False

    partial_credit: bool = True


class TestPassRubric(Rubric):
    """The share of tests that pass; without partial credit, 1 where all do."""

    __test__ = False

    def __init__(self, config: TestPassConfig) -> None:
        self.config = config

    def forward(self, action: Action, observation: Observation) -> dict[str, Any]:
        del action
        verdicts = observation.metadata["test_results"]
        share = verdicts.count("passed") / len(verdicts)
        return {"score": share if self.config.partial_credit else float(share == 1.0), "verdicts": " ".join(verdicts)}


@dataclass(frozen=True, slots=True)
class StyleConfig:
    """Settings of `StyleRubric`."""

    llm_service: str = "style_judge"


class StyleRubric(Rubric):
    """What a judge says of the code's style."""

    def __init__(self, config: StyleConfig, judges: JudgeServices) -> None:
        self.config = config
        self.judges = judges

    async def forward(self, action: Action, observation: Observation) -> Any:
        del observation
        return await self.judges.call_tool(self.config.llm_service, code=action.message)


class EfficiencyRubric(Rubric):
    """1 for what was right at once, and less for each further attempt, down to 0."""

    def forward(self, action: Action, observation: Observation) -> float:
        del action
        attempts = len(observation.metadata["submission_history"])
        most: int = observation.metadata["most_attempts"]
        return (most - attempts) / (most - 1)

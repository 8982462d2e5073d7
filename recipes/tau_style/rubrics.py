"""The rubrics: whether the orders are as the customer may want them, calls that the shop refused, and how the agent spoke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recipes.tau_style.shop import POLICY
from reward_loop.rubrics import Action, Observation, Rubric
from reward_loop.rubrics.judges.services import JudgeServices


class OrdersRubric(Rubric):
    """1 if all orders are at the end as they must be, as tau-bench judges (arXiv:2406.12045), else 0."""

    def forward(self, action: Action, observation: Observation) -> float:
        del action
        return float(observation.metadata["orders"] == observation.metadata["expected_orders"])


class RefusedCallRubric(Rubric):
    """1 if the agent called for something that the shop refused, else 0."""

    def forward(self, action: Action, observation: Observation) -> float:
        del action
        return float(any("done" not in result for result in observation.metadata["tool_results"]))


@dataclass(frozen=True, slots=True)
class MannerConfig:
    """Settings of `MannerRubric`."""

    llm_service: str = "judge_conversation"


class MannerRubric(Rubric):
    """What a judge says of how the agent spoke."""

    def __init__(self, config: MannerConfig, judges: JudgeServices) -> None:
        self.config = config
        self.judges = judges

    async def forward(self, action: Action, observation: Observation) -> Any:
        del action
        conversation = observation.metadata["conversation_history"]
        return await self.judges.call_tool(self.config.llm_service, conversation=conversation, policy=POLICY)

"""A customer's conversation with an agent, as seed 004 has it: the environment keeps the history, the service model nothing."""

from __future__ import annotations

import copy

from recipes.tau_style.shop import ORDERS, Orders, Scenario, run_tools, spoken
from reward_loop.rubrics import Action, Observation
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.pipeline import Episode, RubricPipeline

MOST_TURNS = 6
GOODBYE = "goodbye"


class TauEnvironment:
    """An episode is one customer's concern; it ends when they say goodbye, or after six answers of the agent.

    `services` has the tool `service_model`, which gets the whole conversation with every call.
    """

    def __init__(self, scenario: Scenario, pipeline: RubricPipeline, services: JudgeServices) -> None:
        self.scenario = scenario
        self._pipeline = pipeline
        self._services = services
        self.history: list[dict[str, str]] = []
        self.orders: Orders = {}
        self.episode: Episode = pipeline.start_episode()
        self._satisfied = False

    async def reset(self) -> Observation:
        """Begin the conversation; the customer speaks first."""
        self.history, self.orders, self._satisfied = [], copy.deepcopy(ORDERS), False
        self.episode = self._pipeline.start_episode()
        return Observation(message=await self._customer("Start the conversation."))

    async def step(self, action: Action) -> Observation:
        """Do what the agent calls for, let the customer answer, and say what it earned."""
        results = run_tools(action.message, self.orders)
        self.history.append({"role": "assistant", "content": " ".join([spoken(action.message), *results])})
        answers = sum(turn["role"] == "assistant" for turn in self.history)
        done = self._satisfied or answers == MOST_TURNS
        message = "" if done else await self._customer("Continue the conversation.")
        observation = Observation(
            done=done or self._satisfied,
            message=message,
            metadata={
                "conversation_history": copy.deepcopy(self.history),
                "tool_results": results,
                "orders": copy.deepcopy(self.orders),
                "expected_orders": self.scenario.expected,
            },
        )
        composed = await self.episode.evaluate(action, observation)
        observation.reward = composed.reward
        observation.metadata["reward_components"] = composed.components
        return observation

    async def _customer(self, instruction: str) -> str:
        answer = await self._services.call_tool(
            "service_model",
            persona=self.scenario.user_persona,
            wants=self.scenario.wants,
            order=self.scenario.order,
            conversation=self.history,
            instruction=instruction,
        )
        message: str = answer["text"]
        self.history.append({"role": "user", "content": message})
        self._satisfied = GOODBYE in message.lower()
        return message

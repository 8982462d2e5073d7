"""recipes/tau_style: an agent that keeps to the policy earns most, and the service model is told everything each time."""

from __future__ import annotations

from typing import Any

import pytest

from recipes.tau_style.agents import careful
from recipes.tau_style.environment import MOST_TURNS, TauEnvironment
from recipes.tau_style.run import HERE, converse, run
from recipes.tau_style.services import TOOLS
from recipes.tau_style.shop import ORDERS, SCENARIOS, Orders, run_tools
from reward_loop.rubrics import Action
from reward_loop.rubrics.build import build_pipeline
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.reward_config import RewardConfig


async def test_who_keeps_to_the_policy_and_explains_it_earns_most(capsys: pytest.CaptureFixture[str]) -> None:
    await run(None, None, show=False)
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    earned: dict[str, list[float]] = {}
    for agent, *_, reward in lines:
        earned.setdefault(agent.strip(), []).append(float(reward))
    assert earned == {"careful": [1.2] * 4, "curt": [1.1, 1.1, 1.1, 1.0], "obliging": [1.2, 1.2, 1.2, 0.2]}


async def test_the_customer_gets_the_whole_conversation_and_is_not_asked_at_the_end() -> None:
    seen: list[int] = []

    def customer(conversation: list[dict[str, str]], **asked: Any) -> dict[str, str]:
        del asked
        seen.append(len(conversation))
        return {"text": "No."}

    tools = {**TOOLS, "service_model": customer}
    services = {"service_model": {"type": "inproc", "answer": "text"}, "judge_conversation": {"type": "inproc"}}
    async with JudgeServices(services, functions=tools) as judges:
        pipeline = build_pipeline(
            RewardConfig.load(HERE / "pipeline.yaml"), Resources(judges=judges), allowed_prefixes=["recipes."]
        )
        environment = TauEnvironment(SCENARIOS[0], pipeline, judges)
        await converse(environment, lambda conversation: "Why?")
        assert seen == [2 * turn for turn in range(MOST_TURNS)]
        assert environment.history[-1]["role"] == "assistant"

        await environment.reset()
        observation = await environment.step(Action("CALL return_order(W1001)"))
        assert observation.reward == -0.5  # the shop refused it
        assert environment.orders == ORDERS


def test_tools_change_orders_as_the_policy_allows() -> None:
    orders: Orders = SCENARIOS[0].expected
    assert orders["W1001"]["status"] == "cancelled"
    assert ORDERS["W1001"]["status"] == "pending"
    said = run_tools("CALL cancel_order(W1001) CALL change_address(W1003, 5 Lake View) CALL cancel_order(W9)", orders)
    assert said == [
        "cancel_order: refused for an order that is cancelled",
        "change_address: done",
        "cancel_order: there is no order W9",
    ]
    assert careful([{"role": "user", "content": "I would like to cancel the lamp. It is W1001."}]).startswith("Thank you.")

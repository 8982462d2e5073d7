"""Lets three agents talk to four customers, and prints what each conversation earned.

    python recipes/tau_style/run.py [--show] [--endpoint URL --model NAME]

Without an endpoint the customers and the judge are functions in this process; with one, a model behind an OpenAI-compatible
service speaks for the customers and judges. `--show` prints the conversations.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.tau_style.agents import AGENTS, Agent
from recipes.tau_style.environment import TauEnvironment
from recipes.tau_style.services import TOOLS
from recipes.tau_style.shop import SCENARIOS
from reward_loop.rubrics import Action
from reward_loop.rubrics.build import build_pipeline
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.reward_config import RewardConfig

HERE = Path(__file__).resolve().parent
CUSTOMER = (
    "You are {persona}, a customer of a shop. You want to {wants} (order {order}). The conversation so far: {conversation}\n"
    "{instruction} Say one short sentence, and goodbye once you have what you want."
)
JUDGE = "Judge from 0 to 1 how politely and clearly the agent spoke, under this policy: {policy}\n\n{conversation}"


def services(endpoint: str | None, model: str | None) -> dict[str, Any]:
    """Return the settings of the two services."""
    if endpoint is None:
        return {"service_model": {"type": "inproc", "answer": "text"}, "judge_conversation": {"type": "inproc"}}
    asked = {"type": "openai_llm", "endpoint": endpoint, "model": model}
    return {
        "service_model": {**asked, "prompt": CUSTOMER, "answer": "text"},
        "judge_conversation": {**asked, "prompt": JUDGE},
    }


async def converse(environment: TauEnvironment, agent: Agent) -> tuple[float, dict[str, float]]:
    """Let an agent talk to one customer; return what it earned in all, and the components of the last step."""
    observation = await environment.reset()
    earned = 0.0
    while not observation.done:
        observation = await environment.step(Action(agent(environment.history)))
        earned += observation.reward or 0.0
    return earned, observation.metadata["reward_components"]


async def run(endpoint: str | None, model: str | None, show: bool) -> None:
    """Let every agent talk to every customer, and print a line for each conversation."""
    table = Table("agent", "customer", "orders_as_wanted", "manner", "earned")
    console = Console(width=120, highlight=False, markup=False)
    async with JudgeServices(services(endpoint, model), functions=TOOLS) as judges:
        config = RewardConfig.load(HERE / "pipeline.yaml")
        pipeline = build_pipeline(config, Resources(judges=judges), allowed_prefixes=["recipes."])
        for name, agent in AGENTS.items():
            for scenario in SCENARIOS:
                environment = TauEnvironment(scenario, pipeline, judges)
                earned, components = await converse(environment, agent)
                shown = (f"{components[each]:.2f}" for each in ("orders_as_wanted", "manner"))
                table.add_row(name, scenario.user_persona, *shown, f"{earned:.2f}")
                if show:
                    console.print(f"{name}:")
                    for turn in environment.history:
                        console.print(f"  {turn['role']:9} {turn['content']}")
    console.print(table)


def main() -> None:
    """Read the arguments."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--show", action="store_true", help="print the conversations")
    options.add_argument("--endpoint", help="base URL of an OpenAI-compatible service")
    options.add_argument("--model", help="its model")
    chosen = options.parse_args()
    asyncio.run(run(chosen.endpoint, chosen.model, chosen.show))


if __name__ == "__main__":
    main()

"""Lets an agent write code for rewards of three rubrics, and lowers the weight of style on the way, over HTTP.

    python recipes/rubric_coding_env/run.py [--episodes 6] [--endpoint URL --model NAME]

Without an endpoint style is judged by a function in this process; with one, by a model behind an OpenAI-compatible service.
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

from recipes.rubric_coding_env.environment import CodingEnvironment
from recipes.rubric_coding_env.style_judge import judge_style
from recipes.rubric_coding_env.tasks import TASKS
from reward_loop.config import SandboxConfig
from reward_loop.rubrics import Action
from reward_loop.rubrics.build import build_pipeline
from reward_loop.rubrics.config_client import AsyncRubricConfigClient
from reward_loop.rubrics.config_server import ConfigServer
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.usage import usage_recorded
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.reward_config import RewardConfig
from reward_loop.rubrics.schedule_runner import ScheduleRunner
from reward_loop.sandbox.local import open_local_sandbox

HERE = Path(__file__).resolve().parent
PROMPT = "You judge the style of Python code: readable, well named, documented, simple. The code:\n\n{code}\n"


SCHEDULES = {"code_style": {"type": "linear", "episodes": [0, 4], "values": [0.3, 0.0]}}


def style_judge(endpoint: str | None, model: str | None) -> dict[str, Any]:
    """Return the settings of the service that judges style."""
    if endpoint is None:
        return {"type": "inproc"}
    return {"type": "openai_llm", "endpoint": endpoint, "model": model, "prompt": PROMPT}


async def play(environment: CodingEnvironment, episode: int, table: Table) -> float:
    """Let the agent solve one task, add a line to the table for each submission, and return what it earned."""
    environment.reset()
    earned = 0.0
    for attempt, code in enumerate(environment.task.submissions, start=1):
        observation = await environment.step(Action(code))
        components = observation.metadata["reward_components"]
        shown = [f"{components[name]:.2f}" if name in components else "" for name in ("test_pass", "code_style", "efficiency")]
        weight = f"{environment.episode.weights['code_style']:.3f}"
        table.add_row(f"{episode}", environment.task.name, f"{attempt}", *shown, weight, f"{observation.reward:.3f}")
        earned += observation.reward or 0.0
        if observation.done:
            break
    return earned


async def run(episodes: int, endpoint: str | None, model: str | None) -> None:
    """Play, with the weights on their schedule, and print the table and what the judge cost."""
    table = Table("episode", "task", "attempt", "test_pass", "code_style", "efficiency", "weight of style", "reward")
    services = {"style_judge": style_judge(endpoint, model)}
    sandbox = await open_local_sandbox(SandboxConfig(timeout_s=0.5), places=1)
    try:
        async with JudgeServices(services, functions={"style_judge": judge_style}) as judges:
            resources = Resources(judges=judges, sandbox=sandbox)
            pipeline = build_pipeline(RewardConfig.load(HERE / "pipeline.yaml"), resources, allowed_prefixes=["recipes."])
            async with ConfigServer(pipeline.live) as server:
                weights = ScheduleRunner(SCHEDULES, AsyncRubricConfigClient(server.url, author="run.py").update)
                environment = CodingEnvironment(TASKS, pipeline, sandbox)
                with usage_recorded() as usage:
                    for episode in range(episodes):
                        await weights.astep(episode)
                        await play(environment, episode, table)
    finally:
        await sandbox.close()
    console = Console(width=120, highlight=False, markup=False)
    console.print(table)
    console.print(f"{len(pipeline.live.audit)} changes of weights; the judge was asked {usage.total.calls} times")


def main() -> None:
    """Read the arguments."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--episodes", type=int, default=6)
    options.add_argument("--endpoint", help="base URL of an OpenAI-compatible service that judges style")
    options.add_argument("--model", help="its model")
    chosen = options.parse_args()
    asyncio.run(run(chosen.episodes, chosen.endpoint, chosen.model))


if __name__ == "__main__":
    main()

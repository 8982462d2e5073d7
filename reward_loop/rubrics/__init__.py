"""Rubrics: rewards that are composed, configured, scheduled, logged and judged (seed 004, and OpenEnv's rubrics as shipped).

Importing this costs next to nothing: each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward_loop.rubrics.adapters import as_rubric as as_rubric
    from reward_loop.rubrics.build import build_pipeline as build_pipeline
    from reward_loop.rubrics.catalogue import register_rubric as register_rubric
    from reward_loop.rubrics.composed import Composed as Composed
    from reward_loop.rubrics.composer import RubricComposer as RubricComposer
    from reward_loop.rubrics.compute_score import as_compute_score as as_compute_score
    from reward_loop.rubrics.config_client import AsyncRubricConfigClient as AsyncRubricConfigClient
    from reward_loop.rubrics.config_client import RubricConfigClient as RubricConfigClient
    from reward_loop.rubrics.config_server import ConfigRoutes as ConfigRoutes
    from reward_loop.rubrics.config_server import ConfigServer as ConfigServer
    from reward_loop.rubrics.config_share import ConfigShare as ConfigShare
    from reward_loop.rubrics.containers import Gate as Gate
    from reward_loop.rubrics.containers import RubricDict as RubricDict
    from reward_loop.rubrics.containers import RubricList as RubricList
    from reward_loop.rubrics.containers import Sequential as Sequential
    from reward_loop.rubrics.containers import WeightedSum as WeightedSum
    from reward_loop.rubrics.environment import RubricEnvironment as RubricEnvironment
    from reward_loop.rubrics.judges.llm_judge import LLMJudge as LLMJudge
    from reward_loop.rubrics.judges.mcp_client import MCPClient as MCPClient
    from reward_loop.rubrics.judges.registered import register_judge as register_judge
    from reward_loop.rubrics.judges.services import JudgeServices as JudgeServices
    from reward_loop.rubrics.live_config import LiveConfig as LiveConfig
    from reward_loop.rubrics.logger import RewardLogger as RewardLogger
    from reward_loop.rubrics.normalizer import RewardNormalizer as RewardNormalizer
    from reward_loop.rubrics.observation import Action as Action
    from reward_loop.rubrics.observation import Observation as Observation
    from reward_loop.rubrics.pipeline import RubricPipeline as RubricPipeline
    from reward_loop.rubrics.resources import Resources as Resources
    from reward_loop.rubrics.reward_config import RewardConfig as RewardConfig
    from reward_loop.rubrics.reward_config import RubricEntry as RubricEntry
    from reward_loop.rubrics.rubric import Rubric as Rubric
    from reward_loop.rubrics.schedule_runner import ScheduleRunner as ScheduleRunner
    from reward_loop.rubrics.schedules import schedule_of as schedule_of
    from reward_loop.rubrics.score import Score as Score
    from reward_loop.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric as ExponentialDiscountingTrajectoryRubric
    from reward_loop.rubrics.trajectory import TrajectoryRubric as TrajectoryRubric

_MODULES = {
    "Action": "observation",
    "AsyncRubricConfigClient": "config_client",
    "Composed": "composed",
    "ConfigRoutes": "config_server",
    "ConfigServer": "config_server",
    "ConfigShare": "config_share",
    "ExponentialDiscountingTrajectoryRubric": "trajectory",
    "Gate": "containers",
    "JudgeServices": "judges.services",
    "LLMJudge": "judges.llm_judge",
    "LiveConfig": "live_config",
    "MCPClient": "judges.mcp_client",
    "Observation": "observation",
    "Resources": "resources",
    "RewardConfig": "reward_config",
    "RewardLogger": "logger",
    "RewardNormalizer": "normalizer",
    "Rubric": "rubric",
    "RubricComposer": "composer",
    "RubricConfigClient": "config_client",
    "RubricDict": "containers",
    "RubricEntry": "reward_config",
    "RubricEnvironment": "environment",
    "RubricList": "containers",
    "RubricPipeline": "pipeline",
    "ScheduleRunner": "schedule_runner",
    "Score": "score",
    "Sequential": "containers",
    "TrajectoryRubric": "trajectory",
    "WeightedSum": "containers",
    "as_compute_score": "compute_score",
    "as_rubric": "adapters",
    "build_pipeline": "build",
    "register_judge": "judges.registered",
    "register_rubric": "catalogue",
    "schedule_of": "schedules",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])

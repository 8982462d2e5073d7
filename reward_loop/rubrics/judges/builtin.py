"""The judges that a reward configuration names: `builtin.llm_judge`, `builtin.criteria`, `builtin.pairwise`, `builtin.mcp`.

Each factory takes the entry's `config` and what the run has to offer. The key `scale`, which composers read, may be in every one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from reward_loop.config_base import Config, Count
from reward_loop.errors import ConfigError
from reward_loop.rubrics.judges.criteria import DEFAULT_PROMPT as CRITERIA_PROMPT
from reward_loop.rubrics.judges.criteria import CriteriaJudge
from reward_loop.rubrics.judges.llm_judge import LLMJudge
from reward_loop.rubrics.judges.model_settings import ModelSettings
from reward_loop.rubrics.judges.pairwise import DEFAULT_PROMPT as PAIRWISE_PROMPT
from reward_loop.rubrics.judges.pairwise import PairwiseJudge
from reward_loop.rubrics.judges.service_judge import DEFAULT_ARGUMENTS, ServiceJudge
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.rubric import Rubric
from reward_loop.scoring.transport import misfit

Factory: TypeAlias = Callable[[Mapping[str, Any], Resources], Rubric]
S = TypeVar("S", bound=Config)
_Scale = tuple[float, float] | None


class LLMJudgeSettings(ModelSettings):
    """Of `builtin.llm_judge`: a model, and how `LLMJudge` asks it."""

    prompt_template: str
    score_pattern: str | None = None
    default_score: float | None = None
    normalize: bool = True
    votes: Count = 1
    system: str | None = None
    scale: _Scale = None


class CriteriaSettings(ModelSettings):
    """Of `builtin.criteria`: a model, and the criteria in place or in a YAML file."""

    criteria: str | dict[str, Any] | tuple[Any, ...]
    prompt_template: str = CRITERIA_PROMPT
    batch: Count = 8
    scale: _Scale = None


class PairwiseSettings(ModelSettings):
    """Of `builtin.pairwise`: a model, and what a sample is compared with."""

    against: str = "ground_truth"
    prompt_template: str = PAIRWISE_PROMPT
    disagreement: Literal["tie", "unscorable"] = "tie"
    scale: _Scale = None


class ServiceJudgeSettings(Config):
    """Of `builtin.mcp`: a service of the run, and its arguments."""

    service: str = Field(min_length=1)
    arguments: dict[str, Any] = Field(default_factory=lambda: dict(DEFAULT_ARGUMENTS))
    scale: _Scale = None


def llm_judge(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return a judge that gives a score; ConfigError for a config that can't work."""
    told = _read("builtin.llm_judge", LLMJudgeSettings, config)
    return LLMJudge(
        told.prompt_template,
        told.client(resources.router_address),
        score_pattern=told.score_pattern,
        default_score=told.default_score,
        normalize=told.normalize,
        scale=told.scale,
        votes=told.votes,
        system=told.system,
    )


def criteria(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return a judge that decides criteria; ConfigError for a config that can't work."""
    told = _read("builtin.criteria", CriteriaSettings, config)
    return CriteriaJudge(
        told.criteria, told.client(resources.router_address), prompt_template=told.prompt_template, batch=told.batch
    )


def pairwise(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return a judge that compares; ConfigError for a config that can't work."""
    told = _read("builtin.pairwise", PairwiseSettings, config)
    return PairwiseJudge(
        told.client(resources.router_address),
        against=told.against,
        prompt_template=told.prompt_template,
        disagreement=told.disagreement,
    )


def mcp(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return a rubric that asks a service; ConfigError where the run has none, or not this one."""
    told = _read("builtin.mcp", ServiceJudgeSettings, config)
    if resources.judges is None:
        raise ConfigError(f"builtin.mcp asks the service {told.service}, but no mcp_services are configured")
    return ServiceJudge(resources.judges, told.service, told.arguments)


FACTORIES: Mapping[str, Factory] = MappingProxyType(
    {"builtin.llm_judge": llm_judge, "builtin.criteria": criteria, "builtin.pairwise": pairwise, "builtin.mcp": mcp}
)
"""The factories by the names that entries give."""


def _read(name: str, settings: type[S], config: Mapping[str, Any]) -> S:
    try:
        return settings.model_validate(dict(config))
    except ValidationError as error:
        raise ConfigError(f"{name}: {misfit(error)}; it takes {', '.join(settings.model_fields)}") from None

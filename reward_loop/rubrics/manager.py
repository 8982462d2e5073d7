"""The reward manager `rubric`: every sample is an episode of one step, scored by a rubric pipeline."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from reward_loop.config import RewardLoopConfig
from reward_loop.config_layers import read_layer
from reward_loop.errors import ConfigError, RewardLoopError, Unscorable
from reward_loop.functions.model_reward import model_reward
from reward_loop.functions.tokenizers import load_tokenizer
from reward_loop.managers.base import ManagerKwargs, RewardManagerBase
from reward_loop.managers.registry import register
from reward_loop.rubrics.build import build_pipeline
from reward_loop.rubrics.composed import Composed
from reward_loop.rubrics.config_share import ConfigShare
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.usage import JudgeUsage, usage_recorded
from reward_loop.rubrics.loop_function import LoopFunction, needs_the_loop
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.pipeline import Episode, RubricPipeline
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.reward_config import JUDGES_KEY, RewardConfig


class ConfigServerKwargs(ManagerKwargs):
    """Where the weights can be read and changed while samples are scored."""

    port: int = Field(ge=1, le=65_535)
    host: str = "127.0.0.1"
    """Address to listen at; one that others can reach needs a token."""
    token_env: str | None = None
    """Environment variable with the bearer token that requests must carry."""
    audit: str | None = None
    """File to which every change is appended, and from which a later run goes on."""
    apply: Literal["next_reset", "immediate"] = "next_reset"
    """When a change takes effect that does not say so; every sample is an episode of its own."""


class RubricKwargs(ManagerKwargs):
    """Settings of the manager `rubric`."""

    pipeline: str | dict[str, Any]
    """The rubrics: a YAML file, or what would be in one."""
    mcp_services: str | dict[str, Any] = Field(default_factory=dict)
    """The judges that rubrics call, by name; or a YAML file with them. The pipeline may hold them too."""
    allowed_prefixes: tuple[str, ...] = ()
    """How the dotted path of a rubric's class may begin, besides `reward_loop.`."""
    normalize: bool | Literal["running"] = True
    """Whether scores are brought to 0..1 by their declared scales before they are weighed."""
    aggregate: Literal["sum", "mean"] = "sum"
    """The reward is the weighted sum of the scores, or that over the sum of the weights' sizes."""
    strict: bool = False
    """Whether a score outside its scale is an error; otherwise it is clipped, with a warning."""
    skip_zero_weight: bool = False
    """Whether rubrics of weight 0 are left out; otherwise they are evaluated for their scores."""
    max_concurrency: int | None = Field(default=None, gt=0)
    """Rubrics of a sample that are evaluated at once."""
    config_server: ConfigServerKwargs | None = None
    """Where the configuration is served; of several workers one serves it, and the others follow."""


@register("rubric")
class RubricRewardManager(RewardManagerBase):
    """Score each sample by the rubrics of a pipeline (seed 004).

    The extra info holds `reward_components` (unweighted scores by rubric), `reward_weights`, `config_version`, what judges used
    (`judge_calls`, `judge_prompt_tokens`, `judge_completion_tokens`, `judge_cost`), and what rubrics said as `rubric.key`.
    """

    kwargs_model = RubricKwargs
    asks_itself = True

    def __init__(
        self,
        config: RewardLoopConfig,
        tokenizer: Any,
        compute_score: Callable[..., Any],
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, self._judged, reward_router_address, reward_model_tokenizer)
        self._custom = compute_score
        self._opening = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._pipeline: RubricPipeline | None = None
        self._runs: list[LoopFunction] = []
        self._ready = False

    @functools.cached_property
    def pipeline_config(self) -> RewardConfig:
        """The rubrics that the configuration asks for."""
        return RewardConfig.load(self.kwargs.pipeline)

    @property
    def files(self) -> object:
        """The pipeline."""
        return self.pipeline_config.as_dict()

    @functools.cached_property
    def _services(self) -> str | dict[str, Any]:
        settings: RubricKwargs = self.kwargs
        if settings.mcp_services:
            return settings.mcp_services
        if isinstance(settings.pipeline, str):
            return settings.pipeline if JUDGES_KEY in read_layer(settings.pipeline, 1).tree else {}
        return settings.pipeline.get(JUDGES_KEY) or {}

    def check(self) -> None:
        """Raise ConfigError where the rubrics can't work."""
        _ = self.pipeline_config
        if self.kwargs.config_server and self.config.reward_model.cache.enable:
            raise ConfigError("a cache would keep rewards of weights that config_server may change; leave one of them out")
        if not self._services:
            self._pipeline = self._build(None)
            if not self._pipeline.is_async:
                self.compute_score = self._judged_here
        super().check()

    async def open(self) -> None:
        """Connect to the judges and build the rubrics; ConfigError where that can't be."""
        await super().open()
        await self.pipeline()

    async def pipeline(self) -> RubricPipeline:
        """Return the running pipeline."""
        async with self._opening:
            if not self._ready:
                await self._start()
                self._ready = True
            return self._running

    async def aclose(self) -> None:
        """End the judges' connections and all else."""
        await self._opened.aclose()
        await super().aclose()

    @property
    def _running(self) -> RubricPipeline:
        if self._pipeline is None:
            raise RewardLoopError("the rubric pipeline has not been built")
        return self._pipeline

    async def _start(self) -> None:
        settings: RubricKwargs = self.kwargs
        if self._pipeline is None:
            services = JudgeServices(self._services, router_address=self.reward_router_address)
            self._pipeline = self._build(await self._opened.enter_async_context(services))
        self._opened.callback(self._pipeline.close)
        for run in self._runs:
            self._opened.push_async_callback(run.close)
            await run.open(self.job)
        if settings.config_server is not None:
            await self._opened.enter_async_context(_shared(self._pipeline, settings.config_server))

    def _build(self, judges: JudgeServices | None) -> RubricPipeline:
        settings: RubricKwargs = self.kwargs
        resources = Resources(
            judges=judges,
            reward_model=self._model(),
            custom_function=self._custom,
            in_the_loop=self._in_the_loop,
            router_address=self.reward_router_address,
            sandbox=self.sandbox,
        )
        return build_pipeline(
            self.pipeline_config,
            resources,
            apply=settings.config_server.apply if settings.config_server else "next_reset",
            **settings.model_dump(exclude={"pipeline", "mcp_services", "config_server"}),
        )

    def _model(self) -> Callable[..., Any] | None:
        """Return the function of the served reward model, if a rubric asks it."""
        wanted = any(entry.rubric == "builtin.reward_model" for _, entry in self.pipeline_config.entries())
        if not wanted or self.reward_router_address is None:
            return None
        return model_reward(self.config, self.reward_router_address, load_tokenizer)

    def _in_the_loop(self, function: Callable[..., Any], options: Mapping[str, Any]) -> LoopFunction | None:
        if self.config.reward_model.isolation == "auto" and not needs_the_loop(function, options):
            return None
        self._runs.append(LoopFunction(function, options, self))
        return self._runs[-1]

    async def _judged(
        self,
        solution_str: str,
        data_source: str | None = None,
        ground_truth: Any = None,
        extra_info: dict[str, Any] | None = None,
        raw_prompt: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Return the reward of a rollout, and what made it, as a reward function does."""
        episode = (await self.pipeline()).start_episode()
        with usage_recorded() as usage:
            composed = await episode.evaluate(*_step(solution_str, data_source, ground_truth, extra_info, raw_prompt))
        return _result(composed, episode.config_version, usage.total)

    def _judged_here(
        self,
        solution_str: str,
        data_source: str | None = None,
        ground_truth: Any = None,
        extra_info: dict[str, Any] | None = None,
        raw_prompt: list[dict[str, Any]] | None = None,
    ) -> Any:
        """As `_judged` for rubrics that need not be awaited, in a thread of the reward loop: a fraction of the time."""
        episode = self._running.start_episode()
        composed = episode.begin(*_step(solution_str, data_source, ground_truth, extra_info, raw_prompt))
        if isinstance(composed, Composed):
            return _result(composed, episode.config_version, None)
        return _awaited(composed, episode)


def _step(
    solution_str: str,
    data_source: str | None,
    ground_truth: Any,
    extra_info: dict[str, Any] | None,
    raw_prompt: list[dict[str, Any]] | None,
) -> tuple[Action, Observation]:
    metadata = {
        "data_source": data_source,
        "ground_truth": ground_truth,
        "extra_info": extra_info,
        "raw_prompt": raw_prompt,
    }
    return Action(solution_str), Observation(done=True, metadata=metadata)


async def _awaited(pending: Awaitable[Composed], episode: Episode) -> dict[str, Any]:
    with usage_recorded() as usage:
        composed = await pending
    return _result(composed, episode.config_version, usage.total)


def _result(composed: Composed, config_version: int, usage: JudgeUsage | None) -> dict[str, Any]:
    if composed.reward is None:
        raise Unscorable("; ".join(f"rubric {name}: {why}" for name, why in composed.failures.items()))
    return {
        "score": composed.reward,
        **_said(composed),
        "reward_components": composed.components,
        "reward_weights": composed.weights,
        "config_version": config_version,
        **(usage.as_columns() if usage else {}),
    }


def _shared(pipeline: RubricPipeline, settings: ConfigServerKwargs) -> ConfigShare:
    token = None
    if settings.token_env is not None:
        token = os.environ.get(settings.token_env)
        if not token:
            raise ConfigError(f"config_server.token_env={settings.token_env} holds no token; set it, or leave token_env out")
    audit = Path(settings.audit) if settings.audit else None
    return ConfigShare(pipeline.live, host=settings.host, port=settings.port, token=token, audit=audit)


def _said(composed: Composed) -> dict[str, Any]:
    """Return what the rubrics returned beside their scores, and which of them failed or wrote into what they were given."""
    said = {f"{name}.{key}": value for name, extra in composed.extra.items() for key, value in extra.items()}
    if composed.failures:
        said["rubric_failures"] = composed.failures
    if composed.mutated:
        said["rubrics_that_mutated"] = list(composed.mutated)
    return said

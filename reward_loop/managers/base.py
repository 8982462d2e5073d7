"""The pipeline that every reward manager shares: read the sample, call the function, check the result, shape the reward.

A manager overrides only what differs (`inputs`, `shape`), or `run_single` as a whole as verl's managers do; one that compares
samples defines `run_group` (all samples of one `uid`) or `run_batch` (a whole batch) besides. Invariant: nothing of a batch is
written to, and what a function returns becomes a finite `Reward` or an error.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from reward_loop.config import RateLimitConfig, RewardLoopConfig
from reward_loop.data import DataProto
from reward_loop.data.decode import Decoder
from reward_loop.data.sample import Sample, SampleReader
from reward_loop.errors import ConfigError
from reward_loop.functions.custom import OFFERED, OFFERED_WITH_MODEL, adapt, required_inputs
from reward_loop.functions.isolated import Isolation, declared_isolation, isolation_of
from reward_loop.isolation.pool import GraderPool, processes_for
from reward_loop.isolation.threads import ThreadCrew
from reward_loop.limits.client import open_limiter
from reward_loop.limits.reservation import Limiter
from reward_loop.managers.job import Job
from reward_loop.outcome import Reward, parse_reward
from reward_loop.sandbox.on_demand import SandboxOnDemand

# Passed once (the same for every sample), or of use in this process only.
_STAY_HERE = OFFERED_WITH_MODEL | {"sandbox"}


class Graders(Protocol):
    """What runs a function in other processes."""

    async def start(self) -> None:
        """Get ready; ConfigError if the function can't be loaded there."""

    async def call(self, inputs: Mapping[str, Any]) -> Any:
        """Return what the function returns for these inputs."""

    def close(self) -> None:
        """End it."""


class ManagerKwargs(BaseModel):
    """Base of a manager's own settings, which come from `reward_model.reward_kwargs`; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class RewardManagerBase:
    """Scores one sample with `compute_score`, a function with the contract of a custom reward function.

    A subclass is built as `cls(config, tokenizer, compute_score, reward_router_address, reward_model_tokenizer)`.
    """

    kwargs_model: ClassVar[type[ManagerKwargs] | None] = None
    """What `reward_model.reward_kwargs` may hold for this manager; None: the manager reads them itself."""
    offered: ClassVar[frozenset[str]] = OFFERED
    """The arguments that its reward function may take by name."""
    isolation: ClassVar[Isolation | None] = None
    """Where this manager runs every synchronous function; None: where the configuration or the function says."""
    asks_itself: ClassVar[bool] = False
    """Whether the manager asks the served models by itself, so that none of them is its reward function."""
    job: Job = Job()
    """The reward loop that this manager works for, and its share of the machine."""

    def __init__(
        self,
        config: RewardLoopConfig,
        tokenizer: Any,
        compute_score: Callable[..., Any],
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.compute_score = compute_score
        self.reward_router_address = reward_router_address
        self.reward_model_tokenizer = reward_model_tokenizer

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running event loop, under the name by which verl's managers know it."""
        return asyncio.get_running_loop()

    @functools.cached_property
    def kwargs(self) -> Any:
        """This manager's settings, an instance of `kwargs_model`; ConfigError for keys that it does not know."""
        given = dict(self.config.reward_model.reward_kwargs)
        if self.kwargs_model is None:
            return given
        try:
            return self.kwargs_model.model_validate(given)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(['reward_kwargs', *map(str, e['loc'])])}: {e['msg']} (got {e['input']!r})" for e in error.errors()
            )
            known = sorted(self.kwargs_model.model_fields)
            raise ConfigError(f"reward_manager {type(self).__name__}: {problems}; it takes {known}") from None

    @property
    def files(self) -> object:
        """What this manager has read from files that its settings name, for the key of the cache; plain data."""
        return None

    @functools.cached_property
    def threads(self) -> ThreadCrew:
        """The threads in which synchronous reward functions run."""
        return ThreadCrew(self.config.reward_model.max_threads)

    @functools.cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self.tokenizer)

    @functools.cached_property
    def _function(self) -> Callable[..., Any]:
        offered = self.offered | OFFERED_WITH_MODEL if self.reward_router_address else self.offered
        return adapt(self.compute_score, {}, offered)

    @functools.cached_property
    def _takes_ids(self) -> bool:
        return "response_ids" in inspect.signature(self._function).parameters

    @functools.cached_property
    def _takes_sandbox(self) -> bool:
        return "sandbox" in inspect.signature(self._function).parameters

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the reward function is declared `async`; one that only returns an awaitable is found when it is called."""
        return inspect.iscoroutinefunction(self._function)

    @functools.cached_property
    def pipelined(self) -> bool:
        """Whether one sample is scored by the pipeline of this class, not by a `run_single` of the manager's own."""
        return type(self).run_single is RewardManagerBase.run_single

    @functools.cached_property
    def required(self) -> frozenset[str]:
        """The inputs that the function can't do without; a `run_single` of the manager's own may not even call it."""
        return required_inputs(self._function) if self.pipelined else frozenset()

    def check(self) -> None:
        """Raise ConfigError if the function or the settings can't work; called once, before any sample."""
        _ = self.kwargs, self._function
        if self._imposed == "process" and self.is_async:
            by = f"reward_manager {self.config.reward_model.reward_manager.name}" if self.isolation else "isolation=process"
            raise ConfigError(
                f"{by} grades in other processes and takes synchronous functions only; "
                "an async one needs no isolation: use naive and isolation=auto"
            )
        if self.fixed_isolation == "process" and "sandbox" in self.required:
            raise ConfigError("a function that takes `sandbox` can't run in another process; make it async, or isolation=thread")

    async def open(self) -> None:
        """Start what should not wait for the first sample; ConfigError if it can't be."""
        if "sandbox" in self.required:
            await self.sandbox.open()
        if self.fixed_isolation == "process":
            await self.graders.start()

    @functools.cached_property
    def _imposed(self) -> Isolation | None:
        configured = self.config.reward_model.isolation
        return self.isolation or (None if configured == "auto" else configured)

    @functools.cached_property
    def fixed_isolation(self) -> Isolation | None:
        """Where the function runs for every sample; None where that depends on the sample, or the function is async."""
        if self.is_async:
            return None
        declared = declared_isolation(self._function)
        return self._imposed or (None if callable(declared) else declared)

    def isolation_for(self, data_source: str | None) -> Isolation | None:
        """Return where a sample of this data source is scored; None: the function is async for it."""
        declared = isolation_of(self._function, data_source)
        return self._imposed or declared if declared else None

    def reader(self, data: DataProto) -> SampleReader:
        """Return the reader of a batch's samples; DataError if it lacks a column that the function needs."""
        return SampleReader(data, self._decoder, self.required)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score one item (of several outputs of one trajectory, the last): `reward_score` and `reward_extra_info`."""
        sample = self.reader(data).read([len(data) - 1])[0]
        if not isinstance(sample, Sample):
            raise sample
        result = await self.call(self.inputs(sample))
        return self.finish(sample, result).as_result()

    def start(self, sample: Sample) -> Any:
        """Call the function in this thread, unless it belongs in a process; what it returns may be awaitable."""
        inputs = self.inputs(sample)
        if self.isolation_for(sample.data_source) == "process":
            return self._call_in_process(inputs)
        return self._function(**inputs)

    async def call(self, inputs: dict[str, Any]) -> Any:
        """Call the function with these inputs where it belongs, and await what it returns."""
        isolation = self.isolation_for(inputs.get("data_source"))
        if isolation == "process":
            return await self._call_in_process(inputs)
        result = await self.threads.call(self._function, **inputs) if isolation == "thread" else self._function(**inputs)
        return await result if isinstance(result, Awaitable) else result

    @functools.cached_property
    def sandbox(self) -> SandboxOnDemand:
        """Where programs run that nobody trusts; offered to reward functions."""
        fusion = self.config.sandbox_fusion.max_concurrent
        shared = self._rate_limit
        requests = RateLimitConfig(max_concurrent=fusion, address=shared.address, token_env=shared.token_env)
        return SandboxOnDemand(self.config, self.job.workers_on_node, lambda: self._open_limiter("sandbox_fusion", requests))

    @functools.cached_property
    def limiter(self) -> Limiter:
        """The limit on what all workers of the job together ask of a service."""
        return self._open_limiter("requests", self._rate_limit)

    @property
    def _rate_limit(self) -> RateLimitConfig:
        return self.config.reward_model.rate_limit

    def _open_limiter(self, name: str, settings: RateLimitConfig) -> Limiter:
        address = None if settings.address else self.job.limits
        return open_limiter(settings, name=name, address=address, token=self.job.token)

    async def _call_in_process(self, inputs: dict[str, Any]) -> Any:
        return await self.graders.call({name: value for name, value in inputs.items() if name not in _STAY_HERE})

    @functools.cached_property
    def graders(self) -> Graders:
        """The processes in which functions of isolation=process run."""
        return self.start_graders()

    def start_graders(self) -> Graders:
        """Return what runs functions in processes. Override to run them elsewhere."""
        return GraderPool(**self.grader_settings)

    @property
    def grader_settings(self) -> dict[str, Any]:
        """The arguments of `GraderPool`."""
        settings = self.config.reward_model.grader
        usual, most = processes_for(settings, self.job.workers_on_node)
        constants = {"reward_router_address": self.reward_router_address, "reward_model_tokenizer": self.reward_model_tokenizer}
        return {
            "function": self._function,
            "constants": constants if self.reward_router_address else {},
            "processes": usual,
            "max_processes": most,
            "timeout_s": self.config.reward_model.timeout_s,
            "memory_mb": settings.memory_mb,
        }

    def inputs(self, sample: Sample) -> dict[str, Any]:
        """Return what the function may take by keyword. Override to offer more."""
        inputs = {
            "data_source": sample.data_source,
            "solution_str": sample.solution_str,
            "ground_truth": sample.ground_truth,
            "extra_info": sample.extra_info,
            "raw_prompt": sample.raw_prompt,
        }
        if self._takes_ids:
            inputs["response_ids"] = sample.response_ids
        if self._takes_sandbox:
            inputs["sandbox"] = self.sandbox
        if self.reward_router_address:
            inputs["reward_router_address"] = self.reward_router_address
            inputs["reward_model_tokenizer"] = self.reward_model_tokenizer
        return inputs

    def finish(self, sample: Sample, result: object) -> Reward:
        """Check what the function returned and shape it into the sample's reward."""
        return self.shape(sample, parse_reward(result, sample.response_tokens))

    def shape(self, sample: Sample, reward: Reward) -> Reward:
        """Return the reward as this manager gives it out. Override for penalties and bonuses."""
        return reward

    async def aclose(self) -> None:
        """Release everything; called once, after the last sample, on the event loop that scored."""
        for held in ("sandbox", "limiter"):
            if held in self.__dict__:
                await getattr(self, held).close()
        self.close()

    def close(self) -> None:
        """Release threads and grader processes."""
        for held in ("threads", "graders"):
            if held in self.__dict__:
                getattr(self, held).close()

"""The pipeline that every reward manager shares: read the sample, call the function, check the result, shape the reward.

A manager overrides only what differs (`inputs`, `shape`), or `run_single` as a whole as verl's managers do; one that compares
samples defines `run_group` (all samples of one `uid`) or `run_batch` (a whole batch) besides. Invariant: nothing of a batch is
written to, and what a function returns becomes a finite `Reward` or an error.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from reward_loop.config import RewardLoopConfig
from reward_loop.data import DataProto
from reward_loop.data.decode import Decoder
from reward_loop.data.sample import Sample, SampleReader
from reward_loop.errors import ConfigError
from reward_loop.functions.custom import OFFERED, OFFERED_WITH_MODEL, adapt, required_inputs
from reward_loop.isolation.threads import ThreadCrew
from reward_loop.outcome import Reward, parse_reward


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
    in_thread: ClassVar[bool] = True
    """Whether a synchronous function runs in this process, so that a thread may take one sample after the other."""
    owns_deadline: ClassVar[bool] = False
    """Whether the manager itself ends a sample at `reward_model.timeout_s`."""
    job: str = ""
    """Identifies the reward loop that this manager works for, among those of a Ray cluster."""

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
        """Call the function in this thread; what it returns may be awaitable."""
        return self._function(**self.inputs(sample))

    async def call(self, inputs: dict[str, Any]) -> Any:
        """Call the function with these inputs, off the event loop unless it is async, and await what it returns."""
        if self.is_async:
            return await self._function(**inputs)
        result = await self.threads.call(self._function, **inputs)
        return await result if isinstance(result, Awaitable) else result

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

    def close(self) -> None:
        """Release threads and processes; called once, after the last sample."""
        if "threads" in self.__dict__:
            self.threads.close()

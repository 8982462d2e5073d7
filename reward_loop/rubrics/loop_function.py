"""A reward function as the reward loop runs it, for a rubric: in its thread or its process, with the sandbox it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from reward_loop.data.sample import Sample
from reward_loop.functions.custom import adapt
from reward_loop.functions.isolated import declared_isolation
from reward_loop.managers.base import RewardManagerBase
from reward_loop.managers.job import Job


class LoopFunction:
    """Calls `compute_score` as `owner`, the manager whose rubric it is, would; `options` go with every call, and win."""

    def __init__(self, compute_score: Callable[..., Any], options: Mapping[str, Any], owner: RewardManagerBase) -> None:
        self._data_source = options.get("data_source")
        rest = {name: value for name, value in options.items() if name != "data_source"}
        self._manager = RewardManagerBase(
            owner.config,
            owner.tokenizer,
            adapt(compute_score, rest, owner.offered),
            owner.reward_router_address,
            owner.reward_model_tokenizer,
        )

    async def open(self, job: Job) -> None:
        """Start what the function needs; ConfigError if that can't be."""
        self._manager.job = job
        await self._manager.open()

    async def __call__(
        self,
        solution_str: str,
        data_source: str | None = None,
        ground_truth: Any = None,
        extra_info: Mapping[str, Any] | None = None,
        raw_prompt: list[dict[str, Any]] | None = None,
    ) -> Any:
        """Return what the function returns for a rollout."""
        source = self._data_source or data_source
        sample = Sample(source, solution_str, ground_truth, dict(extra_info or {}), None, None, raw_prompt)
        return await self._manager.call(self._manager.inputs(sample))

    async def close(self) -> None:
        """End what `open` started."""
        await self._manager.aclose()


def needs_the_loop(function: Callable[..., Any], options: Mapping[str, Any]) -> bool:
    """Say whether a function asks for a process of its own or for the sandbox; for other ones a composer's thread will do."""
    declared = declared_isolation(function)
    if not callable(declared):
        return declared == "process" or "sandbox" in inspect.signature(function).parameters
    source = options.get("data_source")
    return source is None or declared(source) in ("process", None)

"""What a worker calls to score one unit: a sample, a group or a batch, whatever the manager.

A `Scorer` takes the unit's rows and returns per row (one for a single sample) its reward or the exception it ended with; it
raises where the unit as a whole failed. `deadline`, `retry` and `cache` wrap any scorer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from reward_loop.data import DataProto, response_lengths
from reward_loop.errors import InvalidReward, RewardLoopError, Unscorable
from reward_loop.managers.base import RewardManagerBase
from reward_loop.outcome import Reward, parse_result

Unit = Literal["single", "group", "batch"]
Scorer = Callable[[DataProto], Awaitable[Sequence[Reward | Exception]]]


def unit_of(manager: type | RewardManagerBase) -> Unit:
    """Return what the manager scores at a time, by the methods that it defines."""
    if callable(getattr(manager, "run_batch", None)):
        return "batch"
    return "group" if callable(getattr(manager, "run_group", None)) else "single"


def scorer_of(manager: RewardManagerBase) -> Scorer:
    """Return the scorer that calls the manager's `run_batch`, `run_group` or `run_single`."""
    unit = unit_of(manager)
    if unit == "single":

        async def score_single(data: DataProto) -> Sequence[Reward | Exception]:
            return [parse_result(await manager.run_single(data), _tokens_of(data)[-1])]

        return score_single
    run: Any = getattr(manager, f"run_{unit}")

    async def score_many(data: DataProto) -> Sequence[Reward | Exception]:
        results = await run(data)
        if not isinstance(results, Sequence) or len(results) != len(data):
            raise InvalidReward(f"run_{unit} must return {len(data)} results, one per row; it returned {results!r:.200}")
        return [_parse(result, tokens) for result, tokens in zip(results, _tokens_of(data), strict=True)]

    return score_many


def _parse(result: object, tokens: int | None) -> Reward | Exception:
    if isinstance(result, Exception):
        return result
    if result is None:
        return Unscorable("the reward manager returned None for this row: it can't be judged")
    try:
        return parse_result(result, tokens)
    except RewardLoopError as error:
        return error


def _tokens_of(data: DataProto) -> Sequence[int | None]:
    return [None] * len(data) if data.tensor("responses") is None else response_lengths(data).tolist()

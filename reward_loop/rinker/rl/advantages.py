"""From the rewards of groups to what each token weighs in the loss.

Invariants: an episode without a reward is in no mean and weighs 0; losses are sums over tokens, so that every way of averaging
is a factor of the advantages.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import assert_never

from reward_loop.credit.aggregation import Aggregation
from reward_loop.credit.normalization import CENTERED, Normalization, group_advantages
from reward_loop.rinker.rl.types import TrajectoryGroup

logger = logging.getLogger(__name__)


def compute_advantages(
    rewards_PG: Sequence[Sequence[float | None]],  # noqa: N803 - the axes: groups, samples
    normalization: Normalization = CENTERED,
) -> list[list[float]]:
    """Return the advantage of every episode of every group; 0 for one whose reward is None, and in a group of one."""
    rewards = [reward for group in rewards_PG for reward in group]
    groups = [number for number, group in enumerate(rewards_PG) for _ in group]
    flat = iter(group_advantages(rewards, groups, normalization))
    return [[next(flat) for _ in group] for group in rewards_PG]


def is_constant(rewards_G: Sequence[float | None]) -> bool:  # noqa: N803
    """Whether a group teaches nothing: all its rewards that are known are the same."""
    return len({reward for reward in rewards_G if reward is not None}) < 2


def remove_constant_reward_groups(groups_P: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:  # noqa: N803
    """Return the groups that teach something, in order; if none does, the first, so that there is something to step with."""
    kept = [group for group in groups_P if not is_constant(group.get_total_rewards())]
    if not kept and groups_P:
        logger.warning("all rewards of %d groups are the same within each: there is no gradient in them", len(groups_P))
    return kept or list(groups_P[:1])


def sequence_factors(lengths: Sequence[int], how: Aggregation, max_tokens: int | None = None) -> list[float]:
    """Return what the advantages of each sequence, of `lengths` action tokens, are to be multiplied with.

    The sum over all tokens is then what `reward_loop.credit.aggregate` gives: "token-sum" is Tinker's and leaves them as they
    are, "token-mean" DAPO's, "seq-mean-token-mean" GRPO's, "seq-mean-token-sum-norm" Dr. GRPO's with its constant `max_tokens`
    (default: the longest).
    """
    sequences = max(1, sum(length > 0 for length in lengths))
    match how:
        case "token-sum":
            factors = [1.0 for _ in lengths]
        case "token-mean":
            factors = [1.0 / max(1, sum(lengths)) for _ in lengths]
        case "seq-mean-token-sum":
            factors = [1.0 / sequences for _ in lengths]
        case "seq-mean-token-mean":
            factors = [1.0 / (sequences * max(1, length)) for length in lengths]
        case "seq-mean-token-sum-norm":
            divisor = max_tokens or max(lengths, default=1)
            factors = [1.0 / (sequences * max(1, divisor)) for _ in lengths]
        case _:
            assert_never(how)
    return factors

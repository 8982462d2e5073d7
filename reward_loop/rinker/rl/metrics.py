"""What is measured of the groups of a step, under the cookbook's names.

`env/all/…` is over all episodes, `env/TAG/…` over those of groups with that tag; episodes without a reward are in no mean of
rewards, and are counted; what environments or rewards measured as no finite number is in no mean, and is told.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from reward_loop.rinker.rl.rollouts import PlayedGroup
from reward_loop.rinker.rl.types import Trajectory, TrajectoryGroup

logger = logging.getLogger(__name__)


def group_metrics(played: Sequence[PlayedGroup], step: int) -> dict[str, float]:
    """Return all metrics of the groups that step `step` is made of."""
    groups = [one.group for one in played if one.group is not None]
    if broken := {name for name, value in _measured(groups) if not math.isfinite(value)}:
        names = ", ".join(sorted(broken))
        logger.warning("environments or rewards measured no finite number, which is left out of the means: %s", names)
    by_tag: defaultdict[str, list[TrajectoryGroup]] = defaultdict(list)
    for one in played:
        for tag in dict.fromkeys(one.tags):
            by_tag[tag] += [one.group] if one.group is not None else []
    metrics = {f"env/{tag}/{name}": value for tag, some in by_tag.items() for name, value in _of(some).items()}
    metrics |= {f"env/all/{name}": value for name, value in _of(groups).items()}
    if "env/all/reward/total" in metrics:
        metrics["reward/total"] = metrics["env/all/reward/total"]
    return {**metrics, **_bookkeeping(played, step)}


def _bookkeeping(played: Sequence[PlayedGroup], step: int) -> dict[str, float]:
    steps = [one.policy_step for one in played]
    ages = [step - one for one in steps]
    return {
        "rollouts/failed_groups": float(sum(one.group is None for one in played)),
        "rollouts/retried_groups": float(sum(one.attempts > 1 for one in played)),
        "rollouts/failed_rewards": float(sum(one.failed_rewards for one in played)),
        "sampling_client/step_min": float(min(steps)),
        "sampling_client/step_max": float(max(steps)),
        "sampling_client/step_mean": _mean(steps),
        "async/staleness_max": float(max(ages)),
        "async/staleness_mean": _mean(ages),
    }


def _of(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    rewards_PG = [group.get_total_rewards() for group in groups]  # noqa: N806 - the axes: groups, samples
    rewards = [reward for group in rewards_PG for reward in group if reward is not None]
    trajectories = [trajectory for group in groups for trajectory in group.trajectories_G]
    metrics = _sizes(trajectories)
    metrics["unscored"] = float(sum(reward is None for group in rewards_PG for reward in group))
    if rewards:
        metrics["reward/total"] = _mean(rewards)
        metrics["reward/min"], metrics["reward/max"] = min(rewards), max(rewards)
        metrics |= {f"by_group/frac_{kind}": share for kind, share in _kinds(rewards_PG, max(rewards)).items()}
    return {**metrics, **_averages(groups)}


def _sizes(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    turns = sum(len(trajectory.transitions) for trajectory in trajectories)
    spoken = sum(trajectory.action_tokens for trajectory in trajectories)
    seen = sum(step.ob.length for trajectory in trajectories for step in trajectory.transitions)
    return {
        "total_episodes": float(len(trajectories)),
        "total_turns": float(turns),
        "total_ac_tokens": float(spoken),
        "total_ob_tokens": float(seen),
        "turns_per_episode": turns / max(1, len(trajectories)),
        "ac_tokens_per_turn": spoken / max(1, turns),
        "ob_tokens_per_turn": seen / max(1, turns),
    }


def _kinds(rewards_PG: Sequence[Sequence[float | None]], best: float) -> dict[str, float]:  # noqa: N803
    """Return the shares of groups with different rewards, with the batch's best reward only, and with one lower reward only."""
    counts = dict.fromkeys(("mixed", "all_good", "all_bad"), 0)
    for group in rewards_PG:
        known = {reward for reward in group if reward is not None}
        if known:
            counts["mixed" if len(known) > 1 else "all_good" if known == {best} else "all_bad"] += 1
    total = max(1, sum(counts.values()))
    return {kind: count / total for kind, count in counts.items()}


def _averages(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """Return the mean of what environments and rewards measured; of those that measured it, and got a finite number."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for name, value in _measured(groups):
        if math.isfinite(value):
            values[name].append(value)
    return {name: _mean(some) for name, some in values.items()}


def _measured(groups: Sequence[TrajectoryGroup]) -> Iterator[tuple[str, float]]:
    for group in groups:
        for trajectory, metrics in zip(group.trajectories_G, group.metrics_G, strict=True):
            for some in (metrics, *(step.metrics for step in trajectory.transitions)):
                yield from ((name, float(value)) for name, value in some.items())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

"""From groups that were played to what the learner gets: rewards are shaped, centred, spread over tokens and weighed.

Invariants: what has no reward trains nothing; shaping comes before centring; what is divided by or compared with is of all the
groups, and only the average of the losses is of what one update is made of; nothing of the groups is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from reward_loop.managers.dapo import overlong_penalty
from reward_loop.rinker.rl.advantages import compute_advantages, remove_constant_reward_groups, sequence_factors
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.kl import differences, kl_of_episode, kl_v1, shaped_reward, with_token_penalty
from reward_loop.rinker.rl.logprobs import logprobs_of
from reward_loop.rinker.rl.policy import SamplingClientLike
from reward_loop.rinker.rl.training_sequence import FloatArray, TrainingSequence, training_sequences
from reward_loop.rinker.rl.types import Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """What passes are made of, and what was measured on the way."""

    parts: Sequence[Sequence[TrainingSequence]]
    """Of each pass."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def sequences(self) -> list[TrainingSequence]:
        """Those of all passes."""
        return [one for part in self.parts for one in part]


@dataclass(frozen=True, slots=True)
class _Episode:
    sequences: Sequence[TrainingSequence]
    reward: float | None
    """Shaped."""
    reference: Sequence[FloatArray] = ()
    """What the reference model gives the sequences, where distance from it costs something."""


async def training_batch(
    groups: Sequence[TrajectoryGroup], config: RLConfig, reference: SamplingClientLike | None = None, *, parts: int = 1
) -> TrainingBatch:
    """Return the sequences of these groups, in so many parts of whole groups, or as many as there are groups.

    `reference` is needed where distance from it costs something.
    """
    kept = remove_constant_reward_groups(groups) if config.remove_constant_reward_groups else groups
    episodes = [[_episode(one, reward, config) for one, reward in _pairs(group)] for group in kept]
    metrics: dict[str, float] = {}
    if reference is not None:
        flat = [one for group in episodes for episode in group for one in episode.sequences]
        known = iter(await logprobs_of(flat, reference, config.failures))
        episodes = [
            [_beside(episode, [next(known) for _ in episode.sequences], config) for episode in group] for group in episodes
        ]
        metrics = _kl_metrics(episodes)
    advantaged = iter(_advantaged(episodes, config))
    sizes = part_sizes(len(kept), parts)
    cut = [[sequences for _ in range(size) for sequences in next(advantaged)] for size in sizes]
    return TrainingBatch([_weighed(part, config) for part in cut], metrics)


def part_sizes(groups: int, parts: int) -> list[int]:
    """Cut so many groups into parts that differ by one at most; few groups make fewer parts."""
    parts = min(parts, groups)
    return [groups // parts + (place < groups % parts) for place in range(parts)]


def _pairs(group: TrajectoryGroup) -> list[tuple[Trajectory, float | None]]:
    return list(zip(group.trajectories_G, group.get_total_rewards(), strict=True))


def _episode(trajectory: Trajectory, reward: float | None, config: RLConfig) -> _Episode:
    if reward is None:
        return _Episode([], None)
    return _Episode(training_sequences(trajectory), reward + _overlong(trajectory, config))


def _beside(episode: _Episode, reference: Sequence[FloatArray], config: RLConfig) -> _Episode:
    """Return the episode with what the reference gives its sequences, and less of its reward."""
    kl = kl_of_episode(episode.sequences, reference)
    return replace(episode, reward=shaped_reward(episode.reward, kl, config.kl.reward_coef), reference=reference)


def _overlong(trajectory: Trajectory, config: RLConfig) -> float:
    """Return what the longest answer costs: `max_tokens` is the limit of one, however many turns there are."""
    if config.overlong is None:
        return 0.0
    limit = config.max_tokens
    longest = max((len(step.ac.tokens) for step in trajectory.transitions), default=0)
    return overlong_penalty(min(longest, limit), limit, config.overlong.buffer(limit), config.overlong.factor)


def _advantaged(groups: Sequence[Sequence[_Episode]], config: RLConfig) -> list[list[list[TrainingSequence]]]:
    """Return for each group the sequences of each episode that has a reward, with its advantage at what the policy said."""
    rewards = [[episode.reward for episode in group] for group in groups]
    advantages = compute_advantages(rewards, config.advantage.normalization())
    scored = [
        [(episode, advantage) for episode, advantage in zip(group, row, strict=True) if episode.reward is not None]
        for group, row in zip(groups, advantages, strict=True)
    ]
    result = [[[one.plus(one.mask * advantage) for one in episode.sequences] for episode, advantage in group] for group in scored]
    if not config.kl.token_coef:
        return result
    flat = [one for group in result for sequences in group for one in sequences]
    reference = [one for group in scored for episode, _ in group for one in episode.reference]
    shaped = iter(with_token_penalty(flat, reference, config.kl.token_coef, config.kl.token_discount))
    return [[[next(shaped) for _ in sequences] for sequences in group] for group in result]


def _weighed(episodes: Sequence[Sequence[TrainingSequence]], config: RLConfig) -> list[TrainingSequence]:
    lengths = [sum(one.action_tokens for one in sequences) for sequences in episodes]
    factors = sequence_factors(lengths, config.aggregation, config.max_tokens)
    return [one.weighted(factor) for sequences, factor in zip(episodes, factors, strict=True) for one in sequences]


def _kl_metrics(groups: Sequence[Sequence[_Episode]]) -> dict[str, float]:
    episodes = [episode for group in groups for episode in group]
    sequences = [one for episode in episodes for one in episode.sequences]
    reference = [one for episode in episodes for one in episode.reference]
    return {"kl_policy_base": kl_v1(differences(sequences, reference))}

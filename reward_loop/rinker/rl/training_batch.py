"""From groups that were played to what the learner gets: rewards are shaped, centred, spread over tokens and weighed.

Invariants: what has no reward trains nothing; shaping comes before centring; nothing of the groups is changed.
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
    """What one pass is made of, and what was measured on the way."""

    sequences: Sequence[TrainingSequence]
    metrics: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class _Episode:
    sequences: Sequence[TrainingSequence]
    reward: float | None
    """Shaped."""
    reference: Sequence[FloatArray] = ()
    """What the reference model gives the sequences, where distance from it costs something."""


async def training_batch(
    groups: Sequence[TrajectoryGroup], config: RLConfig, reference: SamplingClientLike | None = None
) -> TrainingBatch:
    """Return the sequences of these groups; `reference` is needed where distance from it costs something."""
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
    return TrainingBatch(_weighed(_advantaged(episodes, config), config), metrics)


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


def _advantaged(groups: Sequence[Sequence[_Episode]], config: RLConfig) -> list[list[TrainingSequence]]:
    """Return the sequences of each episode that has a reward, with its advantage at what the policy said."""
    rewards = [[episode.reward for episode in group] for group in groups]
    advantages = compute_advantages(rewards, config.advantage.normalization())
    pairs = [
        (episode, advantage)
        for group, row in zip(groups, advantages, strict=True)
        for episode, advantage in zip(group, row, strict=True)
        if episode.reward is not None
    ]
    result = [[one.plus(one.mask * advantage) for one in episode.sequences] for episode, advantage in pairs]
    if not config.kl.token_coef:
        return result
    flat = [one for sequences in result for one in sequences]
    reference = [one for episode, _ in pairs for one in episode.reference]
    shaped = iter(with_token_penalty(flat, reference, config.kl.token_coef, config.kl.token_discount))
    return [[next(shaped) for _ in sequences] for sequences in result]


def _weighed(episodes: Sequence[Sequence[TrainingSequence]], config: RLConfig) -> list[TrainingSequence]:
    lengths = [sum(one.action_tokens for one in sequences) for sequences in episodes]
    factors = sequence_factors(lengths, config.aggregation, config.max_tokens)
    return [one.weighted(factor) for sequences, factor in zip(episodes, factors, strict=True) for one in sequences]


def _kl_metrics(groups: Sequence[Sequence[_Episode]]) -> dict[str, float]:
    episodes = [episode for group in groups for episode in group]
    sequences = [one for episode in episodes for one in episode.sequences]
    reference = [one for episode in episodes for one in episode.reference]
    return {"kl_policy_base": kl_v1(differences(sequences, reference))}

"""From groups that were played to what the learner gets: rewards are shaped, centred, spread over tokens and weighed.

Invariants: what has no reward trains nothing; shaping comes before centring; nothing of the groups is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from reward_loop.managers.dapo import overlong_penalty
from reward_loop.rinker.rl.advantages import compute_advantages, remove_constant_reward_groups, sequence_factors
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.kl import differences, kl_of_episode, kl_v1, shaped_reward, with_token_penalty
from reward_loop.rinker.rl.policy import SamplingClientLike
from reward_loop.rinker.rl.training_sequence import FloatArray, TrainingSequence, training_sequences
from reward_loop.rinker.rl.types import Trajectory, TrajectoryGroup
from reward_loop.rinker.types import ModelInput

_REFERENCES_AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """What one pass is made of, and what was measured on the way."""

    sequences: Sequence[TrainingSequence]
    metrics: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class _Episode:
    sequences: list[TrainingSequence]
    reference: list[FloatArray]
    reward: float | None


async def training_batch(
    groups: Sequence[TrajectoryGroup], config: RLConfig, reference: SamplingClientLike | None = None
) -> TrainingBatch:
    """Return the sequences of these groups; `reference` is needed where distance from it costs something."""
    kept = remove_constant_reward_groups(groups) if config.remove_constant_reward_groups else groups
    asked = asyncio.Semaphore(_REFERENCES_AT_A_TIME)
    async with asyncio.TaskGroup() as tasks:
        running = [
            [tasks.create_task(_episode(one, reward, config, reference, asked)) for one, reward in _pairs(group)]
            for group in kept
        ]
    episodes = [[task.result() for task in group] for group in running]
    metrics = _kl_metrics(episodes) if reference is not None else {}
    return TrainingBatch(_weighed(_advantaged(episodes, config), config), metrics)


def _pairs(group: TrajectoryGroup) -> list[tuple[Trajectory, float | None]]:
    return list(zip(group.trajectories_G, group.get_total_rewards(), strict=True))


async def _episode(
    trajectory: Trajectory,
    reward: float | None,
    config: RLConfig,
    reference: SamplingClientLike | None,
    asked: asyncio.Semaphore,
) -> _Episode:
    """Return an episode with its shaped reward."""
    if reward is None:
        return _Episode([], [], None)
    sequences = training_sequences(trajectory)
    known: list[FloatArray] = []
    if reference is not None:
        async with asked:
            known = [await logprobs_of(sequence, reference) for sequence in sequences]
        reward = shaped_reward(reward, kl_of_episode(sequences, known), config.kl.reward_coef)
    return _Episode(sequences, known, _less_overlong(reward, trajectory, config))


def _less_overlong(reward: float | None, trajectory: Trajectory, config: RLConfig) -> float | None:
    if config.overlong is None or reward is None:
        return reward
    buffer = config.overlong.buffer_tokens or max(1, config.max_tokens // 5)
    return reward + overlong_penalty(trajectory.action_tokens, config.max_tokens, buffer, config.overlong.factor)


async def logprobs_of(sequence: TrainingSequence, client: SamplingClientLike) -> FloatArray:
    """Return another model's log-probability of every target of a sequence, [T - 1]."""
    logprobs = await client.compute_logprobs(ModelInput.from_ints(sequence.tokens))
    return np.asarray([0.0 if value is None else value for value in logprobs[1:]], dtype=np.float64)


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

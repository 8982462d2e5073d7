"""Three things that are all called KL: a diagnosis, a part of the reward, a part of the advantages.

d is always log q - log p of a token that q drew: of the sampler against the learner (diagnosis), or of the policy against a
reference (the two penalties). Only tokens that the policy drew count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reward_loop.errors import DataError
from reward_loop.rinker.rl.training_sequence import FloatArray, TrainingSequence


def kl_v1(differences: FloatArray) -> float:
    """Mean of d: unbiased, may be negative."""
    return float(differences.mean()) if differences.size else 0.0


def kl_v2(differences: FloatArray) -> float:
    """Half the mean of d squared: never negative, biased where the policies are far apart."""
    return float(0.5 * np.square(differences).mean()) if differences.size else 0.0


def differences(sequences: Sequence[TrainingSequence], logprobs: Sequence[FloatArray]) -> FloatArray:
    """Return d of every token that the policy drew, [tokens]; `logprobs` are another model's of all targets."""
    return np.concatenate([d[s.mask > 0] for s, d in zip(sequences, _all(sequences, logprobs), strict=True)] or [np.zeros(0)])


def kl_sample_train(sequences: Sequence[TrainingSequence], logprobs: Sequence[FloatArray]) -> dict[str, float]:
    """Return how far the learner's log-probabilities are from the sampler's, under the cookbook's names, and the entropy."""
    d = differences(sequences, logprobs)
    sampled = np.concatenate([s.logprobs[s.mask > 0] for s in sequences] or [np.zeros(0)])
    return {
        "optim/kl_sample_train_v1": kl_v1(d),
        "optim/kl_sample_train_v2": kl_v2(d),
        "optim/entropy": float(-sampled.mean()) if sampled.size else 0.0,
    }


def kl_of_episode(sequences: Sequence[TrainingSequence], reference: Sequence[FloatArray]) -> float:
    """Return the sum of d over an episode: what `shaped_reward` weighs."""
    return float(differences(sequences, reference).sum())


def shaped_reward(reward: float | None, kl: float, beta: float) -> float | None:
    """Return R - beta * sum d, of which the advantage is made afterwards; None stays None."""
    return None if reward is None else reward - beta * kl


def with_token_penalty(
    sequences: Sequence[TrainingSequence], reference: Sequence[FloatArray], coef: float, discount: float = 0.0
) -> list[TrainingSequence]:
    """Return the sequences with coef * (mean of d over the batch - d) added to each token's advantage, as the cookbook does.

    With a `discount` each token gets the discounted sum of what it and those after it would get.
    """
    mean = kl_v1(differences(sequences, reference))
    shaped: list[TrainingSequence] = []
    for sequence, d in zip(sequences, _all(sequences, reference), strict=True):
        penalty = coef * sequence.mask * (mean - np.where(sequence.mask > 0, d, 0.0))
        shaped.append(sequence.plus(discounted_future_sum(penalty, discount) if discount else penalty))
    return shaped


def discounted_future_sum(values: FloatArray, discount: float) -> FloatArray:
    """Return, for every position, the sum of the values from there on, each times `discount` to the power of its distance."""
    sums = np.zeros_like(values)
    running = 0.0
    for place in range(len(values) - 1, -1, -1):
        running = float(values[place]) + discount * running
        sums[place] = running
    return sums


def _all(sequences: Sequence[TrainingSequence], logprobs: Sequence[FloatArray]) -> list[FloatArray]:
    for sequence, other in zip(sequences, logprobs, strict=True):
        if other.shape != sequence.logprobs.shape:
            raise DataError(f"{other.shape[0]} log-probabilities for a sequence of {sequence.logprobs.shape[0]} targets")
    return [sequence.logprobs - other for sequence, other in zip(sequences, logprobs, strict=True)]
